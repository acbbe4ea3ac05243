/* The probes of checksum._core. */

provider checksum {
	/* Some bytes are about to be added to a checksum. */
	probe update__start(size_t length, uint32_t before);

	/* They were added. */
	probe update__done(size_t length, uint32_t after);
};
