"""Make the pictures of the documentation from real programs, in a headless Chromium: `make pictures`.

The traced program is the server that the tests trace, the others show the tutorial's (`drawings`). Pictures are not
the same from run to run, as no two traces are; they are committed, and made anew when what they show changes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import drawings
from chromium import Browser, find_browser

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tests/tracing/sources"
PICTURES = ROOT / "docs/pictures"
OURS = (sys.executable, "-m", "usdtbuild")


def main() -> int:
    """Make the pictures; return the exit code."""
    if find_browser() is None:
        print("Chromium is not installed (Debian: chromium)", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        folder = Path(name)
        build(folder)
        run(folder, *OURS, "trace", "-P", "server:*", "-o", "trace.html", "--", "./server", "40", "4",
            "1500")  # fmt: skip
        timeline(folder / "trace.html")
        tutorial(folder)
    return 0


def tutorial(folder: Path) -> None:
    """Show what is said of the tutorial's program, and the way of one of its probes."""
    drawings.build(folder, OURS)
    run(folder, "objcopy", "--remove-section=.note.stapsdt", "kitchen", "damaged")
    drawings.terminal(folder, OURS, ("usdtbuild list kitchen",), PICTURES / "list.svg")
    commands = ("usdtbuild verify kitchen", "usdtbuild verify damaged")
    drawings.terminal(folder, OURS, commands, PICTURES / "verify.svg")
    drawings.way(folder, OURS, folder / "way.html")
    with Browser(1180, 400, scale=1.5) as browser:
        browser.open(folder / "way.html")
        browser.picture(PICTURES / "way.png", whole=True)
        said(browser)


def build(folder: Path) -> None:
    """Build the program."""
    run(folder, *OURS, "header", "--formats=dof", SOURCES / "server.d", "-o", "server.h")
    run(folder, *OURS, "cc", "--", "gcc", "-O2", "-I.", "-c", SOURCES / "server.c", "-o", "server.o")
    run(folder, "gcc", "server.o", "-o", "server", "-pthread")


def run(folder: Path, *words: str | Path) -> None:
    """Run a command there; CalledProcessError if it fails."""
    subprocess.run([str(word) for word in words], cwd=folder, check=True)


def timeline(page: Path) -> None:
    """Show a part of the timeline, something clicked and something under the mouse."""
    with Browser(1180, 640, scale=1.5) as browser:
        browser.open(page)
        box = browser.ask("(() => { const b = usdtbuildTrace.main.over.getBoundingClientRect();"
                          " return [b.left, b.top, b.width]; })()")  # fmt: skip
        left, top, width = box
        browser.drag((left + width * 0.40, top + 10), (left + width * 0.50, top + 10))
        time.sleep(0.5)
        click = point_at(browser, "server:request", 0, 0.4)
        browser.click(*click)
        # Taking a picture at another scale makes the mouse leave the page.
        browser.ask("addEventListener('mouseleave', (event) => event.stopImmediatePropagation(), true)")
        browser.mouse("mouseMoved", *point_at(browser, "server:query", 1, 0.35))
        time.sleep(0.5)
        browser.picture(PICTURES / "timeline.png")
        said(browser)


def point_at(browser: Browser, name: str, lane: int, part: float) -> tuple[float, float]:
    """Return where a wide span of that name is, in a lane, from a part of the window on."""
    x, y = browser.ask(f"""(() => {{
        const {{ main, lanes, items }} = usdtbuildTrace, box = main.over.getBoundingClientRect();
        const names = JSON.parse(document.getElementById("data").textContent).names;
        const at = (moment) => main.valToPos(moment, "x");
        const item = items.find((one) => one[0] === {lane} && names[one[4]] === {name!r}
            && at(one[2]) > box.width * {part} && at(one[2] + one[3]) - at(one[2]) > 60
            && at(one[2] + one[3]) < box.width);
        return [box.left + at(item[2] + item[3] / 2), box.top + lanes[{lane}].top + item[1] * 20 + 14];
    }})()""")
    return x, y


def said(browser: Browser) -> None:
    """Stop if the page has complained about anything."""
    if browser.errors:
        raise SystemExit("\n".join(browser.errors))


if __name__ == "__main__":
    sys.exit(main())
