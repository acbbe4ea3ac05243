#include "journal.h"

#include <cstdio>

#include "journal_probes.h" // made from journal_probes.d

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
