/* The static library: makes greetings. */
#ifndef GREETING_H
#define GREETING_H

#include <stddef.h>

/* Write a greeting for `name` to `text`, which has room for `room` bytes; return its length in characters. */
size_t greet(const char *name, int number, char *text, size_t room);

#endif
