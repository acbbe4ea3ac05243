/* Probes of well-known programs and libraries, whose files don't say what their arguments are. */

/* CPython built with --with-dtrace: Doc/howto/instrumentation.rst, Include/pydtrace.d */
provider python {
    probe function__entry(char *filename, char *function, int line);
    probe function__return(char *filename, char *function, int line);
    probe instance__new__start(char *type, char *module);
    probe instance__new__done(char *type, char *module);
    probe instance__delete__start(char *type, char *module);
    probe instance__delete__done(char *type, char *module);
    probe line(char *filename, char *function, int line);
    probe gc__start(int generation);
    probe gc__done(long collected);
    probe import__find__load__start(char *module);
    probe import__find__load__done(char *module, int found);
    probe audit(char *event, void *arguments);
};

/* GCC's libstdc++-v3/libsupc++: eh_throw.cc, eh_catch.cc */
provider libstdcxx {
    probe throw(void *object, void *type);
    probe rethrow(void *object, void *type);
    probe catch(void *object, void *type);
};
