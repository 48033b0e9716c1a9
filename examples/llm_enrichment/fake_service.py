"""A stand-in for the language model: it labels a text by its words, and refuses more than `limit` requests a second.

`python fake_service.py` serves it on port 8900.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

SUBJECTS = {"invoice": "billing", "refund": "billing", "parcel": "delivery", "password": "login", "login": "login"}
PORT, LIMIT = 8900, 7


def labels(text: str) -> dict[str, Any]:
    """What the model knows about a text."""
    words = text.lower().replace("!", " ").split()
    return {"subject": next((SUBJECTS[word] for word in words if word in SUBJECTS), None), "is_urgent": "!" in text}


class FakeService:
    """Serves on loopback while it is open. `failing` requests are answered with an error first."""

    def __init__(self, port: int = 0, limit: int = LIMIT, failing: int = 0) -> None:
        self.texts: list[str] = []
        """The texts of all requests."""
        self.refused: int = 0
        """How many requests came too fast."""
        self.failing: int = failing
        self._limit = limit
        self._times: list[float] = []
        self._lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
                status = service.accept(text)
                body = json.dumps(labels(text) if status == 200 else {}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url: str = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def accept(self, text: str) -> int:
        """Note a request; return the status of the answer."""
        with self._lock:
            now = time.monotonic()
            self.texts.append(text)
            self._times = [at for at in self._times if now - at < 1] + [now]
            if self.failing:
                self.failing -= 1
                return 503
            if len(self._times) > self._limit:
                self.refused += 1
                return 429
            return 200

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


if __name__ == "__main__":
    with FakeService(PORT) as serving:
        print(f"serving at {serving.url}; stop with Ctrl+C")
        threading.Event().wait()
