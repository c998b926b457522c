"""A headless Chromium, driven through two pipes: no port, no package."""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOUND = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
_SECONDS = 60.0


class Browser:
    """One tab of a browser, and what it complained about."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._number, self._rest = 0, b""
        self._events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the tab for something, and wait for its answer."""
        return self._call(method, session=self._session, **params)

    def open(self, file: Path, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Show a page at a width, by day or by night, and wait until it is there."""
        self._events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800,
                  deviceScaleFactor=1, mobile=width < 500)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=file.as_uri())
        deadline = time.monotonic() + _SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            assert time.monotonic() < deadline, "the page did not load"
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and what the page asked the network for."""
        self.evaluate("0")  # what came before is here by now
        found = []
        for event in self._events:
            params = event["params"]
            match event["method"]:
                case "Log.entryAdded":
                    found.append(f"{params['entry']['level']}: {params['entry']['text']}")
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                    found.append(json.dumps(params))
                case "Network.requestWillBeSent" if not params["request"]["url"].startswith(
                    "file:"
                ):
                    found.append(f"asked for {params['request']['url']}")
        return found

    def screenshot(self, file: Path) -> None:
        """Write the whole page as a picture."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        printed = self.call("Page.printToPDF", printBackground=True)
        return base64.b64decode(printed["data"])

    def _call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._read, 1 << 20)
            assert more, "the browser ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self._events.append(message)
        return message


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser, and end it with the block."""
    assert FOUND is not None
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()

    def connect() -> None:
        os.dup2(theirs_in, 3)
        os.dup2(theirs_out, 4)

    # Pipes 3 and 4 are the browser's own: ours move out of their way.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (theirs_in, theirs_out)]
        os.close(theirs_in)
        os.close(theirs_out)
        theirs_in, theirs_out = high
        process = subprocess.Popen(
            [FOUND, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
             f"--user-data-dir={profile}", "--remote-debugging-pipe"],
            pass_fds=(3, 4, *high), preexec_fn=connect,  # noqa: PLW1509 - no thread is there yet
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for fd in high:
            os.close(fd)
        try:
            yield Browser(ours_in, ours_out)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(ours_in)
            os.close(ours_out)
