#include "words.hpp"

#include <cstring>
#include <iostream>
#include <string>

#include "ring.hpp"

void last_words(int count, char **words)
{
    Ring<std::string, 2> texts;
    Ring<int, 2> lengths; // main.cpp has a ring of this type too: its sites are in the program once
    for (int i = 0; i < count; i++) {
        texts.push(words[i]);
        lengths.push(static_cast<int>(std::strlen(words[i])));
    }
    texts.drain([](const std::string &text) { std::cout << text << '\n'; });
    lengths.drain([](int length) { std::cout << length << '\n'; });
}
