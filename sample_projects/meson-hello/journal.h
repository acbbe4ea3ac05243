/* The shared library: keeps a journal of lines. */
#ifndef JOURNAL_H
#define JOURNAL_H

#ifdef __cplusplus
extern "C" {
#endif

/* Print `line` and count it; return how many lines there are now. */
unsigned int journal_append(const char *line);

#ifdef __cplusplus
}
#endif

#endif
