provider hidden {
	probe step(int number);
	probe asked(int twice);
};
