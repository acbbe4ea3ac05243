provider cache {
	/* A key was there: which, and how many keys there are. */
	probe hit(const char *key, int size);
	/* It wasn't. */
	probe miss(const char *key);
	/* The oldest key had to make room. */
	probe evict(const char *key, unsigned long age);
};
