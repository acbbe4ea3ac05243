provider constants {
    probe passed(int64_t number, uint64_t bits, double real);
};
