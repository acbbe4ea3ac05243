"""Finished binaries and running processes: what a tracer will see there. `probes.inspect` answers for one file."""
