"""The timeline and the flame graph in a real browser: they show what was traced, zoom, search, and run none of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from usdtbuild.tracing.model import Event
from usdtbuild.tracing.outputs.flame import Flame
from usdtbuild.tracing.outputs.html import MOST_HITS, Html

from .recorded import TARGETS, WILD, written

pytestmark = pytest.mark.slow  # a browser is big, and installed by `make test-all` only

TOOLS = Path(__file__).resolve().parents[2] / "tools"
WINDOW = "[usdtbuildTrace.main.scales.x.min, usdtbuildTrace.main.scales.x.max]"


@pytest.fixture(scope="module")
def browser(tool: Any) -> Iterator[Any]:
    chromium = tool("chromium")
    if chromium.find_browser() is None:
        pytest.skip("chromium is not installed")
    with chromium.Browser(1200, 800) as opened:
        yield opened


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page of recorded or other hits; at the end of the test it must have had nothing to complain about."""

    def opened(make: Any = Html, *words: Any, **trace: Any) -> Any:
        path = tmp_path / ("page.svg" if make is Flame else "page.html")
        path.write_text(written(make, *words, **trace), encoding="utf-8")
        browser.open(path)
        return browser

    yield opened
    assert browser.errors == []


def wait(browser: Any, expression: str) -> None:
    """Wait until an expression is true in the page: it draws when the browser finds time."""
    for _ in range(200):
        if browser.ask(expression):
            return
        time.sleep(0.02)
    pytest.fail(f"{expression} is not so after 4 seconds; {browser.errors}")


def place(browser: Any, moment: float, lane: int, row: int) -> tuple[float, float]:
    """Where in the window a moment (nanoseconds) of a lane's row is."""
    code = f"""(() => {{
        const {{ main, lanes }} = usdtbuildTrace, box = main.over.getBoundingClientRect();
        return [box.left + main.valToPos({moment}, "x"), box.top + lanes[{lane}].top + {row} * 20 + 14];
    }})()"""
    x, y = browser.ask(code)
    return x, y


def text(browser: Any, selector: str) -> str:
    return str(browser.ask(f"document.querySelector({selector!r}).textContent"))


def test_everything_is_there(show: Any) -> None:
    browser = show(Html, "./server --fast")
    assert browser.ask("document.documentElement.dataset.ready") == "yes"
    assert text(browser, "h1") == "Trace of ./server --fast"
    assert text(browser, "#facts").startswith("12 hits · 2 threads · 9.00 us · 2026-")
    labels = browser.ask("[...document.querySelectorAll('#labels b')].map((one) => one.textContent)")
    assert labels == ["server", "worker\\x1b[0m"]
    cells = "[...row.children].map((cell) => cell.textContent)"
    rows = browser.ask(f"[...document.querySelectorAll('tbody tr')].map((row) => {cells})")
    assert rows == [
        ["server:request", "3", "10 µs", "5 µs", "5 µs"], ["server:query", "2", "4 µs", "2 µs", "2.5 µs"],
        ["server:mark", "2", "–", "–", "–"],
    ]  # fmt: skip
    drawn = """(() => {
        const { ctx, bbox } = usdtbuildTrace.main, colours = new Set();
        const pixels = ctx.getImageData(bbox.left, bbox.top, bbox.width, bbox.height).data;
        for (let i = 0; i < pixels.length; i += 4) colours.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
        return ["76,134,217", "224,138,60"].every((one) => colours.has(one));
    })()"""
    wait(browser, drawn)


@pytest.mark.parametrize(
    ("moment", "lane", "row", "name", "said"),
    [
        (500, 0, 0, "server:request", 'id = 1\npath = "/a"\nat the end: status = 200'),
        (1500, 0, 1, "server:query", f"arg0 = {1 << 60}"),
        (4000, 0, 1, "server:mark", "where = 0x7f00\nratio = nan\npath = NULL"),
        (8990, 0, 0, "server:request", "id = 3\npath = 0x10"),
    ],
)
def test_hovering_shows_the_arguments_and_a_click_keeps_them(
    show: Any, moment: int, lane: int, row: int, name: str, said: str
) -> None:
    browser = show()
    browser.mouse("mouseMoved", *place(browser, moment, lane, row))
    wait(browser, "!document.getElementById('tip').hidden")
    assert text(browser, "#tip b") == name
    assert text(browser, "#tip pre") == said
    browser.click(*place(browser, moment, lane, row))
    assert text(browser, "#details h2") == name
    values = browser.ask("[...document.querySelectorAll('#details dd')].map((one) => one.textContent)")
    assert [line.split(" = ", 1)[1] for line in said.split("\n")] == values[-len(said.split("\n")) :]


def test_nothing_traced_becomes_markup_or_runs(show: Any) -> None:
    browser = show(Html, "</title><script>alert(2)</script>")
    browser.click(*place(browser, 3000, 1, 0))
    shown = WILD.decode("utf-8", "backslashreplace").split("\x1b")[0]
    assert shown in text(browser, "#details dl")
    assert browser.ask("document.querySelectorAll('script').length") == 3
    assert browser.ask("document.querySelectorAll('#details script, #tip script').length") == 0


def test_zooming_and_moving(show: Any) -> None:
    browser = show()
    whole = browser.ask(WINDOW)
    assert whole == pytest.approx([-90, 9090])
    start, end = place(browser, 2000, 0, 1), place(browser, 4000, 0, 1)
    browser.drag(start, end)
    wait(browser, f"{WINDOW}[0] > 1900")
    assert browser.ask(WINDOW) == pytest.approx([2000, 4000], abs=20)
    browser.mouse("mouseMoved", *place(browser, 3000, 0, 1))
    browser.mouse("mouseWheel", *place(browser, 3000, 0, 1), deltaX=0, deltaY=-100, modifiers=2)
    wait(browser, f"{WINDOW}[1] - {WINDOW}[0] < 1600")
    near = browser.ask(WINDOW)
    assert sum(near) / 2 == pytest.approx(3000, abs=20)
    browser.drag(place(browser, 3000, 0, 1), place(browser, 3300, 0, 1), modifiers=8)
    wait(browser, f"{WINDOW}[0] < {near[0] - 290}")
    moved = browser.ask(WINDOW)
    assert moved[1] - moved[0] == pytest.approx(near[1] - near[0])
    browser.key("d")
    wait(browser, f"{WINDOW}[0] > {moved[0] + 10}")
    browser.key("s")
    browser.key("0")
    wait(browser, f"{WINDOW}[0] < -80")
    assert browser.ask(WINDOW) == pytest.approx(whole)
    for _ in range(40):
        browser.key("w")
    wait(browser, f"{WINDOW}[1] - {WINDOW}[0] < 21")
    for _ in range(40):
        browser.key("a")
    wait(browser, f"{WINDOW}[0] >= -91")


def test_search_finds_names_and_arguments_and_steps_through_them(show: Any) -> None:
    browser = show()
    browser.ask("document.getElementById('wanted').focus()")
    browser.call("Input.insertText", text="ID = 2")
    wait(browser, "document.getElementById('found').textContent === '1 found'")
    browser.ask("document.getElementById('search').requestSubmit()")
    assert browser.ask("usdtbuildTrace.chosen()[2]") == 2000
    browser.ask("document.querySelector('tbody tr').click()")
    assert text(browser, "#found") == "3 found"
    assert browser.ask("document.getElementById('wanted').value") == "server:request"
    begins = []
    for _ in range(4):
        browser.ask("document.getElementById('search').requestSubmit()")
        begins.append(browser.ask("usdtbuildTrace.chosen()[2]"))
    assert begins == [8000, 0, 2000, 8000]
    browser.ask("document.getElementById('previous').click()")
    assert browser.ask("usdtbuildTrace.chosen()[2]") == 2000
    assert text(browser, "#found") == "2 of 3"


def test_as_many_hits_as_a_page_holds(show: Any) -> None:
    values: tuple[tuple[int, int | bytes], ...] = ((1, b"/"), (1, 200))
    events = [Event(i * 700, 10, 10 + i // 2 % 5, i % 2, values[i % 2]) for i in range(MOST_HITS + 10)]
    browser = show(Html, "much", events=events)
    assert browser.ask("usdtbuildTrace.items.length") == MOST_HITS // 2
    assert "the first 200,000 of 200,010 hits" in text(browser, "#notes")
    assert browser.ask("usdtbuildTrace.lanes.length") == 5


def test_an_empty_trace_is_a_page(show: Any) -> None:
    browser = show(Html, "nothing", events=())
    assert text(browser, "#facts").startswith("0 hits · 0 threads")


def test_flame_graph_zooms_and_searches(show: Any) -> None:
    browser = show(Flame)
    names = browser.ask("[...document.querySelectorAll('.frame')].map((frame) => frame.dataset.name)")
    assert names == ["all", "server:request", "server:query"]
    width = "+document.querySelectorAll('.frame rect')[2].getAttribute('width')"
    before = browser.ask(width)
    click = "document.querySelectorAll('.frame')[{}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
    browser.ask(click.format(2))
    assert browser.ask(width) == 1180 > before
    browser.ask("document.getElementById('reset').dispatchEvent(new MouseEvent('click'))")
    assert browser.ask(width) == pytest.approx(before)
    browser.answer = "QUERY"
    browser.ask("document.getElementById('search').dispatchEvent(new MouseEvent('click'))")
    browser.answer = None
    assert text(browser, "#matched") == "1 frames match"


def test_a_flame_graph_runs_nothing_traced(show: Any) -> None:
    wild = [event._replace(values=(WILD,)) for event in (Event(1, 1, 1, 0, ()), Event(9, 1, 1, 1, ()))]
    targets = [TARGETS[0]._replace(name="function__entry", arguments=(TARGETS[0].arguments[1]._replace(name="name"),)),
               TARGETS[1]._replace(name="function__return")]  # fmt: skip
    browser = show(Flame, targets=targets, events=wild)
    shown = browser.ask("document.querySelectorAll('.frame')[1].dataset.name")
    assert shown == "</script><script>alert(1)</script>\\xff\\x1b[31m\\n,\"';=]]>"
    assert browser.ask("document.querySelectorAll('script').length") == 1
