/* The probes of wordcount._core. */

provider wordcount {
	/* A text is about to be counted: the text, and how many bytes it has. */
	probe count__start(char *text, size_t length);

	/* A word was found: where it begins, counted in bytes from the start of the text, and its bytes. */
	probe word(size_t position, size_t length);

	/* All words are counted. */
	probe count__done(size_t words);
};
