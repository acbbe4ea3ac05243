"""CPU time that a project with probes takes to compile, over the same with sys/sdt.h, and without probes.

    python benchmarks/many_files.py            2,001 files with 14,000 sites, which takes minutes
    python benchmarks/many_files.py 301        fewer of them

Every file includes what C files include, and has seven sites in seven functions; one has the program's `main`. Each is
compiled in the three ways in turns, so that a machine is in the same mood for all; what is shown is the sum. Nothing
else differs: the header is made once, and linking is the same.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from common import USDTBUILD, cpu_seconds, have, report, run, workspace

if TYPE_CHECKING:
    from pathlib import Path

PROBES = 7
PROVIDER = "provider shop { " + " ".join(f"probe step{n}(int, char *, long);" for n in range(PROBES)) + " };\n"
HEADERS = "#include <errno.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
FUNCTION = """\
long work_{file}_{n}(int count, char *text)
{{
	long sum = 0;

	for (int i = 0; i < count; i++) {{
		if (text[i] == 0)
			return -EINVAL;
		sum += (uint8_t)text[i] * {n} + i;
		{site}
	}}
	if (sum > 1000)
		printf("%s: %ld\\n", text, sum);
	return sum + (long)strlen(text);
}}
"""
# way -> what is included, and a site
WAYS = {
    "none": ("", ""),
    "sys/sdt.h": ("#include <sys/sdt.h>\n", "STAP_PROBE3(shop, step{n}, i, text, sum);"),
    "header": ('#include "shop.h"\n', "SHOP_STEP{n}(i, text, sum);"),
}


def write(folder: Path, files: int) -> list[str]:
    """Write the project in each way; return the files' names."""
    for at, (include, site) in enumerate(WAYS.values()):
        (folder / str(at)).mkdir()
        for file in range(files):
            functions = [FUNCTION.format(file=file, n=n, site=site.format(n=n)) for n in range(PROBES)]
            text = HEADERS + include + "".join(functions) * (file > 0)
            (folder / str(at) / f"f{file}.c").write_text(text + "int main(void) { return 0; }\n" * (file == 0))
    (folder / "shop.d").write_text(PROVIDER)
    run([USDTBUILD, "header", "shop.d", "-o", "2/shop.h"], folder)
    return [f"f{file}.c" for file in range(files)]


def main() -> None:
    """Compile all, and say what it cost."""
    if not have("gcc"):
        sys.exit("gcc is not installed")
    files = int(sys.argv[1]) if sys.argv[1:] else 2001
    spent = [0.0] * len(WAYS)
    with workspace(in_memory=True) as folder:
        for at, name in enumerate(write(folder, files)):
            for way in sorted(range(len(WAYS)), key=lambda way: (way + at) % len(WAYS)):
                spent[way] += cpu_seconds(["gcc", "-O2", "-c", name, "-o", "out.o"], folder / str(way))
    rows = [
        (name, f"{seconds:.1f} s", f"{seconds / spent[0]:.3f}", f"{seconds / spent[1]:.3f}")
        for name, seconds in zip(WAYS, spent)
    ]
    title = f"Compiling {files:,} files with {(files - 1) * PROBES:,} sites (target: 1.02 of sys/sdt.h)"
    report(title, ("probes", "CPU", "of none", "of sys/sdt.h"), rows)


if __name__ == "__main__":
    main()
