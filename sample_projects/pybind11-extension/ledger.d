/* The probes of the module ledger; pyproject.toml names this file. */

provider ledger {
	/* Money came in: whose account, how much, and what it holds now. */
	probe deposit(char *owner, int64_t amount, int64_t balance);

	/* Money went out. */
	probe withdraw(char *owner, int64_t amount, int64_t balance);

	/* Somebody asked for more than there is. */
	probe refused(char *owner, int64_t amount, int64_t balance);
};
