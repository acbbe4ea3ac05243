/* The probes of the program itself, and of the static library it is linked with. */

provider hello {
	/* The program starts, and is going to greet so many people. */
	probe start(int people, char *first);

	/* Somebody is about to be greeted. */
	probe greet__begin(char *name);

	/* Somebody was greeted: the number of this greeting, and how many characters it took. */
	probe greet__done(char *name, int number, size_t length);

	/* The program ends. */
	probe finish(int greetings, uint64_t characters);
};
