"""Record formats that tracers read: one module each encodes and decodes one. None knows where the bytes go."""
