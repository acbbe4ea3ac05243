"""The CMake package, as entry points name it.

A wheel has its files here. A checkout has them in the top level's cmake/, and what lies here hands on to them: an
editable install works like a wheel.
"""
