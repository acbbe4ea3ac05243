/* What the live tests trace: every width and sign, pointers, strings, stack arguments, tail calls, is-enabled. */
provider live {
    probe ints(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f, int64_t g, uint64_t h);
    probe text(char *what, void *where);
    probe twelve(int a, int b, int c, int d, int e, int f, int8_t g, uint16_t h, int i, int64_t j, int k, int l);
    probe tail__call(int a, int b, int c, int d, int e, int f, int g, char *h);
    probe guarded(int round);
    probe real(double d, float f, bool yes);
};
