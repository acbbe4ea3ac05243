provider tracee {
	probe begin(int id, const char *name);
	probe end(int id, double d, short last);
};
