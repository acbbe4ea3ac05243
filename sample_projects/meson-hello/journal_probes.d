/* The probes of the shared library. */

provider journal {
	/* A line was written down; there are so many now. */
	probe append(char *line, unsigned int lines);
};
