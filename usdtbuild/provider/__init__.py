"""The provider language: model, parser, printer, header and documentation. Knows nothing of ELF."""
