/* The other source of the program. */
#ifndef WORDS_HPP
#define WORDS_HPP

/* Keep the last words in a ring of strings, and the last lengths in one of integers; print what is left at the end. */
void last_words(int count, char **words);

#endif
