"""Data only: the Meson subproject. A Python package so that it is found in editable installs too."""
