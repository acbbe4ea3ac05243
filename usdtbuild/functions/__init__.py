"""Function entries made by `-fpatchable-function-entry`: which there are, and whether they can be patched safely.

One module for each question: `read` reads a file, `symbols` names functions, `table` reads
`__patchable_function_entries`, `machines` knows what NOPs look like, `entry` checks bytes, `jumps` looks for branches
into them, `explain` judges ordinary prologues. The compiler's option is the business of `compilers.flags`, and static
probes are another matter: nothing here knows of them.
"""
