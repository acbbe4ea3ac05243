"""A compile, link or assembler step: the compiler runs, and its objects are completed. `compile` is the way in."""
