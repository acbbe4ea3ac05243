"""ELF relocatable objects: reading what instrumenting needs, and append-only writing. Knows nothing of probes."""
