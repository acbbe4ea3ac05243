/* The probes of the ring buffer, whatever its elements are. */

provider ring {
	/* An element went in: which ring, how many are in it now, and how large an element is. */
	probe push(void *ring, size_t used, size_t size);

	/* The oldest element had to go, because the ring was full. */
	probe drop(void *ring, size_t room);

	/* A ring is about to be emptied: which one, and how many elements are in it. */
	probe drain(void *ring, size_t used);
};
