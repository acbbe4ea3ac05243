/* What the corpus calls: every number of arguments, every width, and what is passed otherwise than declared. */
provider corpus {
	probe none();
	probe one(int value);
	probe args2(int a, int b);
	probe args3(int a, int b, int c);
	probe args4(int a, int b, int c, int d);
	probe args5(int a, int b, int c, int d, int e);
	probe args6(int a, int b, int c, int d, int e, int f);
	probe args7(int a, int b, int c, int d, int e, int f, int g);
	probe args8(int a, int b, int c, int d, int e, int f, int g, int h);
	probe args9(int a, int b, int c, int d, int e, int f, int g, int h, int i);
	probe args10(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j);
	probe args11(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k);
	probe args12(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l);
	probe narrow(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f);
	probe narrow__stack(int a, int b, int c, int d, int e, int f, int g, int h, int8_t i, uint16_t j, uint8_t k, int16_t l);
	probe words(long a, unsigned long b, void *c, char *d);
	probe wide(int64_t a, int b, uint64_t c, int d, int64_t e, int64_t f, int g, uint64_t h, int64_t i);
	probe wide__odd(int a, int64_t b, int c, int d, int e, int f, int g, int64_t h, int i, uint64_t j);
	probe floats(double a, float b, int c);
	probe text(char *what);
	probe inlined(int value);
	probe cold(int value);
	probe early(int value);
	probe stored(int value);
	probe by__pointer(int value);
};
