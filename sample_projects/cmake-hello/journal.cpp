#include "journal.h"

#include <cstdio>

#include "journal-probes.h" // made from journal.d

namespace {
unsigned int lines = 0;
}

unsigned int journal_append(const char *line)
{
    std::puts(line);
    std::fflush(stdout);
    ++lines;
    JOURNAL_APPEND(line, lines);
    return lines;
}
