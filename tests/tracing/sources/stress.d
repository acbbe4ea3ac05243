/* One probe at 64 places, each at another offset in its cache line. */
provider stress { probe pass(int place, long n, long thrice, long inverse, char *text); };
