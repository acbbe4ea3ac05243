"""The drop-in for `dtrace -h` and `-G`: the object that `-G` writes, and the compiler of the build that calls it."""
