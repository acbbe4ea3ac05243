/* What is traced: every width and sign, strings that can and can't be read, arguments on the stack, a semaphore. */
provider scene {
    probe ints(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f);
    probe wide(int64_t a, uint64_t b, double c, float d, void *e);
    probe text(char *what, int length);
    probe eight(int a, int b, int c, int d, int e, int f, int8_t g, int64_t h);
    probe guarded(int round);
    probe last(int round, int sum);
};
