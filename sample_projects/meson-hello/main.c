/*
 * hello [--forever] NAME...
 *
 * Greets everybody once; with --forever once a second until it is interrupted, which leaves time to attach a tracer
 * to the running process.
 */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "greeting.h"
#include "hello.h" /* made from hello.d */
#include "journal.h"

int main(int count, char **arguments)
{
    int forever = count > 1 && strcmp(arguments[1], "--forever") == 0;
    char **names = arguments + 1 + forever;
    int people = count - 1 - forever;
    char *nobody[] = {"world"};
    if (people == 0) {
        names = nobody;
        people = 1;
    }

    int greetings = 0;
    uint64_t characters = 0;
    HELLO_START(people, names[0]);
    do {
        for (int i = 0; i < people; i++) {
            char text[200];
            greetings++;
            characters += greet(names[i], greetings, text, sizeof text);
            journal_append(text);
        }
        if (forever)
            sleep(1);
    } while (forever);
    HELLO_FINISH(greetings, characters);
    return 0;
}
