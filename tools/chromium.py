"""Drive a headless Chromium: open a page, ask it questions, move the mouse, take a picture.

Speaks the DevTools protocol over the pipe that `--remote-debugging-pipe` gives (messages of JSON, each ended by a zero
byte, on the descriptors 3 and 4), so that neither a driver nor Node nor a package is needed beside the browser. Used by
tests and by tools/pictures.py; it is not part of the product.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
    "--force-color-profile=srgb",
)  # fmt: skip


def find_browser() -> str | None:
    """Return the path of a Chromium, None if there is none."""
    return next((path for path in map(shutil.which, _NAMES) if path), None)


class Browser:
    """One page in a browser of its own, with a profile of its own; for use in a `with`."""

    def __init__(self, width: int = 1280, height: int = 800, scale: float = 1, dark: bool = False) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-")
        self._number = 0
        self._session = ""
        self.errors: list[str] = []
        self.answer: str | None = None  # what is said when the page asks; without it any dialog is an error
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        self._pending = b""
        # The browser expects the pipe's ends at 3 and 4; sh puts them there, whatever numbers they have here.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        words = ["bash", "-c", script, find_browser() or "chromium", *_FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            [*words, "about:blank"], pass_fds=(to_browser, from_browser), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next((page["targetId"] for page in pages if page["type"] == "page"), None)
        target = target or self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for room in ("Page", "Runtime", "Log"):
            self.call(f"{room}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        for _ in range(50):  # its helpers end by themselves, and write until then
            shutil.rmtree(self._profile.name, ignore_errors=True)
            if not Path(self._profile.name).exists():
                break
            time.sleep(0.1)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and return its result; RuntimeError if the browser refuses."""
        number = self._send(method, parameters)
        while True:
            answer = self._message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._number

    def _message(self) -> Any:
        while b"\0" not in self._pending:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._pending += piece
        message, _, self._pending = self._pending.partition(b"\0")
        return json.loads(message)

    def _note(self, message: Any) -> None:
        """Keep what the page complains about; answer what it asks."""
        if message.get("method") == "Page.javascriptDialogOpening":
            if self.answer is None:
                self.errors.append(f"a dialog: {message['params']['message']}")
            self._send("Page.handleJavaScriptDialog", {"accept": True, "promptText": self.answer or ""})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(message["params"]["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        for _ in range(600):
            if self.ask("document.readyState") == "complete" and self.ask("location.href") != "about:blank":
                return
            time.sleep(0.05)
        raise RuntimeError(f"{path} is not loaded after 30 seconds")

    def ask(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page; RuntimeError if it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send `mouseMoved`, `mousePressed`, `mouseReleased` or `mouseWheel` (modifiers: 2 is Ctrl, 8 is Shift)."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, **more: Any) -> None:
        """Click at a place."""
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float], **more: Any) -> None:
        """Press at one place and release at another."""
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", buttons=1, clickCount=1, **more)
        for part in (0.25, 0.5, 0.75, 1):
            x, y = (a + (b - a) * part for a, b in zip(start, end))
            self.mouse("mouseMoved", x, y, button="left", buttons=1, **more)
        self.mouse("mouseReleased", *end, button="left", clickCount=1, **more)

    def key(self, key: str) -> None:
        """Press and release a key that writes one character."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write what the page shows as PNG; with `whole` also what would have to be scrolled to."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
