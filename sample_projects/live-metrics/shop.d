provider shop {
	/* An order came in: what was ordered, and how many of it. */
	probe order__start(const char *what, int count);
	/* It is done: what it costs, in cents; -1 if there is no such thing. */
	probe order__done(const char *what, long cents);
};
