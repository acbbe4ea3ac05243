"""Calls into libraries: which functions of others a file calls, through which slots, stubs and call sites."""
