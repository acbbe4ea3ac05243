/* The probes of primes._core. */

provider primes {
	/* The numbers up to a limit are about to be sieved. */
	probe sieve__start(size_t limit);

	/* The multiples of a prime number were crossed out: the prime, and how many that were. */
	probe crossed__out(size_t prime, size_t multiples);

	/* All primes up to the limit are known; there are so many. */
	probe sieve__done(size_t limit, size_t found);
};
