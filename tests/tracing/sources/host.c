/* Loads the library with the probes, twice, one after the other, usually at the same address. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    for (int i = 0; i < 2; i++) {
        void *library = dlopen("./libscene.so", RTLD_NOW);
        if (!library) return puts(dlerror()), 1;
        int (*scene)(int, char **) = (int (*)(int, char **))dlsym(library, "scene");
        scene(argc, argv);
        dlclose(library);
    }
    return 0;
}
