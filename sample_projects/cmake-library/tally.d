/* The probes of the library. */

provider tally {
	/* Something was counted: what, how many at once, and how many there are now. */
	probe add(char *name, int count, long total);

	/* There is no room for another name. */
	probe full(char *name);
};
