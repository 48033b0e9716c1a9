"""`AdminServer`: answers HTTP requests about an application in its own thread, from before the start until after the end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import ExitStack, suppress
from email.utils import formatdate

import uvicorn
from starlette.routing import Router
from uvicorn.server import ServerState

from penstock.admin.access import Tokens
from penstock.admin.guard import HEADERS, Guard, allowed_hosts
from penstock.admin.listener import listen, tls
from penstock.admin.point_reads import PointReads
from penstock.admin.protocol import CONNECTIONS, KEEP_ALIVE_S, LimitedProtocol
from penstock.admin.routes import ASKING, OPEN, routes
from penstock.observation.redaction import Redactor
from penstock.observation.troubles import kept_troubles
from penstock.runtime.application import RunningApplication

_log = logging.getLogger(__name__)
_HANDSHAKE_S = 5.0
_GRACE_S = 2.0
"""How long pending requests may take when the application has ended."""


class AdminServer:
    """The server of one application. It listens from construction on, and answers from `start` on.

    It runs uvicorn's protocol on its own event loop: uvicorn's server would wake up ten times a second to see whether it should
    end, and would allow clients a minute for a TLS handshake.
    """

    def __init__(self, running: RunningApplication) -> None:
        config = running.config
        assert config.admin_endpoint is not None
        tokens, self._tls = Tokens.of(config), tls(config)
        self._listener = listen(config)
        host = config.admin_endpoint[0]
        port: int = self._listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url: str = f"{'http' if self._tls is None else 'https'}://{shown}:{port}"
        self._name = running.application_id
        self._running = running
        router = Router(routes(running), redirect_slashes=False)
        self._app = Guard(router, tokens, allowed_hosts(host, *config.admin_hosts), OPEN, ASKING)
        self._reads = PointReads(running, self._app)
        self._state = ServerState()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_begun = threading.Event()
        self._is_closing = False
        self._at_close = ExitStack()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{self._name}-admin", daemon=True)

    def start(self) -> None:
        """Start to answer requests."""
        self._running.health.indicators["admin server"] = self.problem
        self._running.recorder.troubles = self._at_close.enter_context(kept_troubles(Redactor.of(self._running.config)))
        self._thread.start()
        self._has_begun.wait()
        _log.info("%s: admin server listening at %s", self._name, self.url)

    def problem(self) -> str | None:
        """Return what is wrong with the server itself, None if nothing is."""
        return None if self._thread.is_alive() or self._is_closing else "the server's thread has ended: see the log"

    def close(self) -> None:
        """Answer pending requests and stop; returns after a grace period even if a request hangs."""
        self._is_closing = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has already ended
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(2 * _GRACE_S)
        if self._thread.is_alive():
            _log.warning("%s: admin server did not stop within %g s; its thread keeps running", self._name, 2 * _GRACE_S)
        self._at_close.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException:  # noqa: BLE001 - the thread has no caller to raise it in
            _log.exception("%s: admin server failed and no longer answers", self._name)
        finally:
            self._listener.close()
            self._has_begun.set()

    async def _serve(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        config = uvicorn.Config(
            self._app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            workers=1,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        config.load()
        self._date()
        server = await loop.create_server(
            lambda: LimitedProtocol(config, self._state, {}, loop, self._reads),
            sock=self._listener,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
            backlog=CONNECTIONS,
        )
        self._has_begun.set()
        while not self._stop.is_set():
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1.0)
            self._date()
        server.close()
        await self._let_go()

    def _date(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode()), *HEADERS]

    async def _let_go(self) -> None:
        """Wait for pending requests, up to the grace period, and close all connections."""
        for connection in list(self._state.connections):
            connection.shutdown()
        deadline = time.monotonic() + _GRACE_S
        while self._state.connections and time.monotonic() < deadline:  # noqa: ASYNC110 - there is no event for the last one
            await asyncio.sleep(0.01)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
