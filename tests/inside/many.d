provider many {
	probe all(int a, long b, int c, int d, int e, int f, long g, int h, char *i, short j);
};
