"""Objects get their probes: `main` is an object's way from input to output, to be read from top to bottom."""
