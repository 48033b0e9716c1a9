"""`Guard`: lets requests through to the routes, or not; what fails behind it becomes an answer that tells nothing."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import traceback
from base64 import b64encode
from dataclasses import dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.admin.access import Access, Tokens
from penstock.admin.answers import Json
from penstock.topology.drawing import STYLE

_log = logging.getLogger(__name__)
_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_GRANTED = "penstock.access"
_LOGGED_CHARACTERS = 300

_DRAWINGS_STYLE = b64encode(hashlib.sha256(STYLE.encode()).digest())  # a drawing brings it along

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; style-src 'self' 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"object-src 'none'" % _DRAWINGS_STYLE,
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer."""


def granted(request: Request) -> Access:
    """What whoever asks may do."""
    access: Access = request.scope[_GRANTED]
    return access


def allowed_hosts(*names: str) -> frozenset[bytes]:
    """The names under which a server may be called: these, and loopback's. A page of a foreign name is thus kept out even if
    its name resolves to this machine.
    """
    return frozenset(_bracketed(name.lower()).encode() for name in (*_LOOPBACK, *names))


@dataclass(frozen=True, slots=True)
class Guard:
    """The door.

    `open_paths` need no token; paths like `asking` only ask although it is by POST, so that a token to read is enough.
    """

    app: ASGIApp
    tokens: Tokens
    hosts: frozenset[bytes]
    open_paths: frozenset[str]
    asking: re.Pattern[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = self._refusal(scope)
        if answer is None:
            try:
                await self.app(scope, receive, send)
            except ClientDisconnect:
                return
            except HTTPException as error:
                answer = Json({"error": error.detail}, error.status_code)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is not to see it
                answer = Json({"error": "internal error; the log has it under this id", "id": _logged(scope, error)}, 500)
        if answer is not None:
            await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> Json | None:
        """Why a request is not let in; None if it is."""
        host = authorization = content_type = b""
        hosts = 0
        for name, value in scope["headers"]:
            if name == b"host":
                host, hosts = value, hosts + 1
            elif name == b"authorization":
                authorization = value
            elif name == b"content-type":
                content_type = value
            elif name == b"origin":
                return _refused(HTTPStatus.FORBIDDEN, "requests of other sites' pages are not taken (Origin)")
        if hosts != 1 or not self._is_mine(host.lower(), scope):
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, "not a name of this server (Host); admin_hosts allows further ones")
        scope[_GRANTED] = access = self.tokens.granted(authorization)
        changes = scope["method"] == "POST" and not self.asking.fullmatch(scope["path"])
        if access is Access.NOTHING and scope["path"] not in self.open_paths:
            answer = _refused(HTTPStatus.UNAUTHORIZED, "a token is needed: Authorization: Bearer ...")
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        if changes and access is not Access.OPERATE:
            return _refused(HTTPStatus.FORBIDDEN, "this token allows to ask only (admin_read_token); admin_token is needed")
        if scope["method"] == "POST" and content_type.partition(b";")[0].strip().lower() != b"application/json":
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is to be JSON (Content-Type: application/json)")
        return None

    def _is_mine(self, host: bytes, scope: Scope) -> bool:
        """Whether `Host` is a name of this server, or the very address the connection came in at."""
        match = _HOST.fullmatch(host)
        return match is not None and (match[1] in self.hosts or match[1] == _bracketed(scope["server"][0]).encode())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _refused(status: HTTPStatus, why: str) -> Json:
    return Json({"error": why}, status)


def _logged(scope: Scope, error: Exception) -> str:
    """Log what went wrong, and under which id. What a client may have put into it is escaped."""
    number = secrets.token_hex(8)
    _log.error("request %s failed: %s %s: %s", number, scope["method"], _escaped(scope["path"]), _trace(error))
    return number


def _trace(error: BaseException) -> str:
    """The stacks of an error and of those that led to it, the first one last, each with its message in one line."""
    parts = []
    cause: BaseException | None = error
    while cause is not None:
        parts.append(f"{type(cause).__name__}: {_escaped(str(cause))}\n{''.join(traceback.format_tb(cause.__traceback__))}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "caused by ".join(parts)


def _escaped(text: str) -> str:
    """In one line of ASCII: no line ends, terminal codes or changes of direction."""
    return ascii(text[:_LOGGED_CHARACTERS])
