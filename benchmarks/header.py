"""CPU time of making a header from a provider with fifty probes, against SystemTap's `dtrace -h`."""

from __future__ import annotations

from common import USDTBUILD, have, in_turns, report, workspace

PROVIDER = (
    "provider app {\n"
    + "".join(f"    probe step{i}__done(int id, char *name, uint64_t bytes);\n" for i in range(50))
    + "};\n"
)


def main() -> None:
    """Measure and print."""
    with workspace() as folder:
        (folder / "app.d").write_text(PROVIDER)
        commands = {"usdtbuild header": [USDTBUILD, "header", "app.d", "-o", "ours.h"]}
        if have("dtrace"):
            commands["dtrace -h (SystemTap)"] = ["dtrace", "-h", "-s", "app.d", "-o", "theirs.h"]
        seconds = in_turns(commands, folder)
        ours = seconds["usdtbuild header"]
        rows = [(name, f"{value * 1000:.1f} ms", f"{ours / value:.2f}") for name, value in seconds.items()]
        report("Header of 50 probes (target: at most 0.25 of SystemTap's)", ("command", "CPU", "ours / this"), rows)


if __name__ == "__main__":
    main()
