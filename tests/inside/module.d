provider module {
	probe tick(int number);
};
