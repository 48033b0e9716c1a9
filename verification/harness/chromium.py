"""A headless Chromium, driven by its DevTools protocol through a pipe: what a page shows, and its errors."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verification.harness.processes import PARTS
from verification.harness.server import Started

_PROGRAM = PARTS / "chromium" / "chromium"
_PATIENCE_S = 30.0
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # root may not have one, and the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",  # it reaches this machine only
)


def chromium() -> str | None:
    """The program that `tools/chromium/bring` installed, or the one on the path; None if there is none."""
    return str(_PROGRAM) if _PROGRAM.exists() else shutil.which("chromium")


class Chromium(Started):
    """One browser with one page. Its profile is new, and removed with it.

    `complaints` are the errors of the page so far: of its console, scripts, network, and policy violations. `requests` are the
    addresses that it has asked for. It reaches this machine only: a page that needs another one does not work.
    """

    def __init__(self, *, width: int = 1280, height: int = 800) -> None:
        self._size = (width, height)
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        self._process: subprocess.Popen[bytes] | None = None
        self._in = self._out = -1
        self._number = 0
        self._buffer = b""
        self._messages: deque[dict[str, Any]] = deque()
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded: set[str] = set()

    def start(self) -> None:
        """Start the browser, and open its page."""
        program = chromium()
        assert program is not None, "no chromium: tools/chromium/bring .parts/chromium"
        take, self._out = os.pipe()
        self._in, give = os.pipe()
        command = [program, *_OPTIONS, f"--user-data-dir={self._profile}", "about:blank"]
        # Chromium uses descriptors 3 and 4, whatever the numbers of the pipes here.
        shell = ["bash", "-c", f'exec 3<&{take} 4>&{give} && exec "$@"', "bash", *command]
        self._process = subprocess.Popen(
            shell, pass_fds=(take, give), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(take)
        os.close(give)
        self._begin()

    def close(self) -> None:
        """End the browser."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            with contextlib.suppress(ProcessLookupError):  # its children outlive it for a moment, and write to the profile
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._in)
            os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _begin(self) -> None:
        [page] = [info for info in self.call("Target.getTargets")["targetInfos"] if info["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)
        self.resize(*self._size)

    def resize(self, width: int, height: int, *, is_phone: bool = False, scale: float = 1) -> None:
        """Give the page another size, with `scale` pixels of a picture for each of its own."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=is_phone)

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded, with its scripts and images."""
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"
        deadline = time.monotonic() + _PATIENCE_S
        while answer["loaderId"] not in self._loaded:  # asked for its state too soon, the page before would answer
            assert time.monotonic() < deadline, f"{url} is not loaded; complaints: {self.complaints}"
            self.rest(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until an expression in the page is true."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < deadline, f"{script} is not true; complaints: {self.complaints}"
            self.rest(0.1)

    def rest(self, seconds: float) -> None:
        """Let the page run for a while."""
        deadline = time.monotonic() + seconds
        while self._arrives(deadline):
            self._hear(self._messages.popleft())

    def press(self, key: str) -> None:
        """Press a non-character key, such as ArrowLeft."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def write(self, text: str) -> None:
        """Type text where the focus is."""
        self.call("Input.insertText", text=text)

    def screenshot(self, file: Path, *, full: bool = False) -> None:
        """Save the page as a PNG; all of it, or what the window shows."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full, optimizeForSpeed=False)
        file.write_bytes(base64.b64decode(picture["data"]))

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the browser's protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_S
        while self._arrives(deadline):
            answer = self._messages.popleft()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._hear(answer)
        raise TimeoutError(f"chromium does not respond to {method}")

    def _arrives(self, deadline: float) -> bool:
        """Whether a message arrives before the deadline."""
        while not self._messages:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            more = os.read(self._in, 1 << 20)
            assert more, "chromium has ended"
            *whole, self._buffer = (self._buffer + more).split(b"\0")
            self._messages.extend(json.loads(message) for message in whole)
        return True

    def _hear(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        if event.get("method") == "Page.lifecycleEvent" and event["params"]["name"] == "load":
            self._loaded.add(event["params"]["loaderId"])
        heard = _COMPLAINTS.get(event.get("method", ""))
        complaint = None if heard is None else heard(event["params"])
        if complaint is not None:
            self.complaints.append(complaint)


def _logged(about: dict[str, Any]) -> str | None:
    entry = about["entry"]
    return f"{entry['text']} ({entry.get('url', '')})" if entry["level"] in {"error", "warning"} else None


def _printed(about: dict[str, Any]) -> str | None:
    return str([argument.get("value") for argument in about["args"]]) if about["type"] in {"error", "warning", "assert"} else None


_COMPLAINTS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "Log.entryAdded": _logged,
    "Runtime.consoleAPICalled": _printed,
    "Runtime.exceptionThrown": lambda about: str(about["exceptionDetails"]),
    "Page.javascriptDialogOpening": lambda about: f"a dialog: {about['message']}",
}
