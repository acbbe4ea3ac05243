/* A program that counts lines. */
provider counter {
	/* A line ended; so many have been read. */
	probe line(long number);

	/* The input ended. */
	probe done(long lines);
};
