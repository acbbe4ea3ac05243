provider stress {
	probe hit(int id, long n);
	probe tail(int id, long n);
};
