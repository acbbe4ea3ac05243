/* ring WORD... prints the last two words, their lengths, and the last two numbers of words. */
#include <iostream>

#include "ring.hpp"
#include "words.hpp"

int main(int count, char **arguments)
{
    Ring<int, 2> numbers;
    for (int i = 1; i < count; i++)
        numbers.push(i);
    last_words(count - 1, arguments + 1);
    numbers.drain([](int number) { std::cout << number << '\n'; });
}
