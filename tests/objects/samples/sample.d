/* The probes of the samples in this folder. */
provider sample {
    probe start();
    probe item(int number, char *name);
    probe item__done(int number, char *name, long total);
    probe wide(int a, char *b, uint8_t c, int64_t d, short e, int f, int g, uint64_t h);
    probe shape(double area, void *object);
    probe rare(int code);
    probe unused(int code);
};
