"""The documentation as a site: `make docs` writes it to build/docs (Sphinx, with MyST for Markdown).

The pages are plain Markdown that reads as well in an editor or on a code forge; _toc.yml says in which order the site
shows them. All that Sphinx can find wrong with them is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from _reference import front_door, json_reference, live_reference  # noqa: E402

from usdtbuild import __version__  # noqa: E402

project = "usdtbuild"
author = "the usdtbuild authors"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_external_toc", "sphinx_copybutton"]
external_toc_path = "_toc.yml"
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # D, and Meson and .d files in part, have no lexer that knows all
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of Python's own, which the site doesn't describe
autodoc_member_order = "bysource"
default_role = "code"  # docstrings write names as Markdown does
add_module_names = False

smartquotes = False  # a docstring's '' is an empty text, no closing quotation mark

html_theme = "furo"
pygments_dark_style = "github-dark"  # the theme's own underlines names as if they were links
html_title = f"usdtbuild {__version__}"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_copy_source = False
html_show_sphinx = False


def _unlink(_: object, page: str, source: list[str]) -> None:
    """Name what links lead to outside of docs/, sources and samples, in place of links: a site doesn't have them."""
    up = r"\((?:\.\./){" + str(page.count("/") + 1) + ",}"
    source[0] = re.sub(r"\[([^\]]+)\]" + up + r"([^)#]*)[^)]*\)", _named, source[0])


def _make_references(_: object, page: str, source: list[str]) -> None:
    """Put what is made from other sources into its pages."""
    package = HERE.parent / "usdtbuild"
    for mark, make, path in (
        ("<!-- the README's beginning -->", front_door, HERE.parent / "README.md"),
        ("<!-- reference: usdt_live.h -->", live_reference, package / "runtime/live/usdt_live.h"),
        ("<!-- reference: schemas -->", json_reference, package / "schemas"),
    ):
        if mark in source[0]:
            source[0] = source[0].replace(mark, make(path))


def _named(link: re.Match[str]) -> str:
    return f"`{link[2]}`" if link[1] in link[2] else f"{link[1]} (`{link[2]}`)"


def setup(app: object) -> None:
    """Register what this site adds to Sphinx."""
    app.connect("source-read", _unlink)  # type: ignore[attr-defined]
    app.connect("source-read", _make_references)  # type: ignore[attr-defined]
