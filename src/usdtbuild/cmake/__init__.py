"""Data only: the CMake package. A Python package so that entry points find it in editable installs too."""
