#include "greeting.h"

#include <stdio.h>
#include <string.h>

#include "hello.h" /* made from hello.d */

size_t greet(const char *name, int number, char *text, size_t room)
{
    HELLO_GREET_BEGIN(name);
    snprintf(text, room, "Hello, %s!", name);

    /* Arguments that cost something to work out are worth the question whether anybody is looking. It costs a load
     * and a branch, and no call. */
    if (HELLO_GREET_DONE_ENABLED())
        HELLO_GREET_DONE(name, number, strlen(text));
    return strlen(text);
}
