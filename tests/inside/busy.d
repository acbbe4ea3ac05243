provider busy {
	probe tick(int id, unsigned long bytes, const char *name);
	probe begin(int id);
	probe end(int id);
};
