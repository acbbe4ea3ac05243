"""Write the header of a provider file whose probes do nothing: `none_header.py app.d -o app.h`.

Meson runs this where usdtbuild isn't installed and probes are off. It knows no more of the language than where probes
are; what is wrong in a provider file shows where it is built with probes. Arguments are not evaluated.
"""

import argparse
import re
from pathlib import Path

HEAD = """\
#pragma GCC system_header
#ifndef USDTBUILD_OFF
#define USDTBUILD_OFF usdtbuild_off
static __inline void usdtbuild_off(int first, ...) { (void)first; }
#endif
"""
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DECLARATION = re.compile(r"\b(provider|probe)\s+(\w+)\s*(?:\{|(\(\s*(?:void\s*)?\))|\()")


def header_of(text: str) -> str:
    """Return the header for a provider file's text."""
    lines = [HEAD]
    provider = ""
    for keyword, name, empty in DECLARATION.findall(COMMENT.sub(" ", text)):
        if keyword == "provider":
            provider = name
            continue
        macro = f"{provider}_{name.replace('__', '_')}".upper()
        fired = "() ((void)0)" if empty else "(...) (0 ? USDTBUILD_OFF(0, __VA_ARGS__) : (void)0)"
        lines += [f"#define {macro}{fired}\n", f"#define {macro}_ENABLED() (0)\n"]
    return "".join(lines)


def main() -> None:
    """Do what the command line says; options of `usdtbuild header` that make no difference here are ignored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("provider")
    parser.add_argument("-o", dest="output", required=True)
    parser.add_argument("--depfile")
    given, _ = parser.parse_known_args()
    Path(given.output).write_text(header_of(Path(given.provider).read_text(encoding="utf-8")), encoding="utf-8")
    if given.depfile:
        Path(given.depfile).write_text(f"{given.output}: {given.provider}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
