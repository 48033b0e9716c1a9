"""How requests to a registry log in: with a password, with a token, or with tokens that an OAuth server gives for a secret."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote_plus, urlencode

import orjson

from penstock.errors import RegistryError
from penstock.http_client import FAILURES, AnswerTooLargeError, HttpClient
from penstock.serdes.registry.settings import OAuth, RegistrySettings

_LONGEST_TEXT = 500
_LONGEST_ANSWER = 1 << 20
_SPARE_S = 30.0
_USUAL_S = 300.0


class NoAnswerError(Exception):
    """No answer now: another attempt may succeed."""


def is_passing(status: int) -> bool:
    """Whether a status says that a server cannot answer now."""
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT}


def text_of(content: bytes) -> str:
    """Return the beginning of what a server says, for a message."""
    return content[:_LONGEST_TEXT].decode(errors="replace").strip() or "no text"


def login(settings: RegistrySettings, clock: Callable[[], float]) -> Login:
    """Return how requests log in, as the settings say."""
    if settings.oauth is not None:
        client = HttpClient(settings.request_timeout_s, _LONGEST_ANSWER, lambda: _trusting(settings.authority))
        return OAuthLogin(settings.oauth, client, clock)
    if settings.user is not None:
        return Login({"Authorization": _basic(settings.user)})
    return Login({} if settings.token is None else {"Authorization": f"Bearer {settings.token}"})


class Login:
    """The headers of requests, which stay the same; `names` are the settings that they come from."""

    names: str = "'basic.auth.user.info' or 'bearer.auth.token'"

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = dict(headers)

    def headers(self) -> dict[str, str]:
        """Return the headers for a request."""
        return self._headers

    def renew(self) -> bool:
        """Return whether a refused request may be accepted with other headers."""
        return False


class OAuthLogin(Login):
    """Asks for a token with the client's credentials, and keeps it until shortly before it ends."""

    names = "'bearer.auth.client.id', 'bearer.auth.client.secret' and 'bearer.auth.scope'"

    def __init__(self, oauth: OAuth, client: HttpClient, clock: Callable[[], float]) -> None:
        super().__init__(dict(oauth.headers))
        self._oauth = oauth
        self._client = client
        self._clock = clock
        self._token = ""
        self._ends = 0.0
        self._asking = threading.Lock()  # those who wait need the token, too; it is held for one request

    def headers(self) -> dict[str, str]:
        """Return the headers with a token that is valid."""
        with self._asking:
            if not self._token or self._clock() >= self._ends:
                self._ask()
            return {**self._headers, "Authorization": f"Bearer {self._token}"}

    def renew(self) -> bool:
        """Forget the token: the registry refuses it, though it should still be valid."""
        with self._asking:
            self._token = ""
        return True

    def _ask(self) -> None:
        oauth = self._oauth
        form = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": _basic(f"{quote_plus(oauth.client_id)}:{quote_plus(oauth.client_secret)}"),
        }
        try:
            status, content = self._client.send("POST", oauth.url, headers, urlencode(form).encode())
        except (*FAILURES, AnswerTooLargeError) as error:
            raise NoAnswerError(f"the OAuth server at {oauth.url} gives no token: {error}") from error
        if is_passing(status):
            raise NoAnswerError(f"the OAuth server at {oauth.url} gives no token: status {status}")
        if status != HTTPStatus.OK:
            raise RegistryError(
                f"The OAuth server at {oauth.url} gives no token (status {status}: {text_of(content)}). Check {self.names} of "
                f"schema_registry."
            )
        self._token, valid_s = _token(content, oauth.url)
        self._ends = self._clock() + max(valid_s - _SPARE_S, valid_s / 2)


def _trusting(authority: str | None) -> ssl.SSLContext:
    """Trust what the system does, and the registry's authority: the OAuth server may have a certificate of either."""
    context = ssl.create_default_context()
    if authority is not None:
        context.load_verify_locations(authority)
    return context


def _basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


def _token(content: bytes, url: str) -> tuple[str, float]:
    """Return a token, and for how many seconds it is valid; the text of the answer is not shown, as it may contain one."""
    try:
        answer: Any = orjson.loads(content)
        token, valid_s = answer["access_token"], float(answer.get("expires_in") or _USUAL_S)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        token, valid_s = None, _USUAL_S
    if not isinstance(token, str) or not token or not token.isprintable():
        raise RegistryError(f"{url} does not answer as an OAuth server does. Check 'bearer.auth.issuer.endpoint.url'.")
    return token, valid_s
