"""The service, as a separate process: HTTP; responds after 20 ms with three times the number in the request.

Usage: python -m benchmarks.time.service PORT
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING

import psutil

from verification.harness.processes import HarnessError, free_port, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

ANSWER_S = 0.02
BACKLOG = 1000


class Service:
    """The process, which ends with its block."""

    def __enter__(self) -> Self:
        self.port = free_port()
        self._process = subprocess.Popen(  # noqa: S603 - this very file
            [sys.executable, "-m", "benchmarks.time.service", str(self.port)]
        )
        wait_until("the service answers", self._answers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """CPU time so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise HarnessError(f"the service ended with {self._process.returncode}")
        try:
            return asyncio.run(_is_open(self.port))
        except OSError:
            return False


async def _is_open(port: int) -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        return True


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one request after the other, as long as the connection lasts."""
    with closing(writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                number = int(head.split(b" ", 2)[1].removeprefix(b"/"))
                await asyncio.sleep(ANSWER_S)
                body = b"%d" % (3 * number)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client has disconnected


async def _main(port: int) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
