/* Loads the module named by its first argument while it runs, as an interpreter does. */
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *module = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
    int (*run)(void);
    if (!module) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&run = dlsym(module, "live_run");
    return run();
}
