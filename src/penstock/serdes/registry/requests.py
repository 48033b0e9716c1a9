"""Requests to a registry over HTTP: bounded in time, repeated while it cannot answer, with its refusals as they are."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import orjson

from penstock.errors import RegistryError
from penstock.http_client import FAILURES, Answer, AnswerTooLargeError, HttpClient
from penstock.serdes.registry.login import NoAnswerError, is_passing, login, text_of
from penstock.serdes.registry.settings import RegistrySettings

_log = logging.getLogger(__name__)

_TYPE = "application/vnd.schemaregistry.v1+json"
_HEADERS = {"Accept": _TYPE, "Content-Type": _TYPE}
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_LONGEST_ANSWER = 16 << 20
_LONGEST_TEXT = 500
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class RefusalError(Exception):
    """What the registry refuses for good: an unknown id, an incompatible schema. `code` is the registry's own number."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status: int = status
        self.code: int = code


class Requests:
    """Sends requests to the addresses of a registry, one after the other; `sleep` and `clock` are for tests."""

    def __init__(
        self,
        settings: RegistrySettings,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings: RegistrySettings = settings
        self._sleep = sleep
        self._clock = clock
        self._client = HttpClient(settings.request_timeout_s, _LONGEST_ANSWER, self._context)
        self._login = login(settings, clock)

    def get(self, path: str) -> Any:
        """Return the answer to a GET."""
        return self._send("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        """Return the answer to a POST."""
        return self._send("POST", path, orjson.dumps(body))

    def _send(self, method: str, path: str, body: bytes | None) -> Any:
        deadline = self._clock() + self.settings.retry_timeout_s
        wait = _FIRST_WAIT_S
        while True:
            try:
                return self._attempt(method, path, body)
            except NoAnswerError as error:
                if self._clock() + wait >= deadline:
                    raise RegistryError(
                        f"The schema registry at {', '.join(self.settings.urls)} has not answered {method} {path} for "
                        f"{self.settings.retry_timeout_s:g} s: {error}. Nothing of the epoch is committed. Check the registry "
                        f"and schema_registry in penstock.toml, then start again."
                    ) from error
                _log.warning("the schema registry does not answer; retrying in %.1f s: %s", wait, error)
            self._sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)

    def _attempt(self, method: str, path: str, body: bytes | None) -> Any:
        """Try every address once."""
        failures = []
        for url in self.settings.urls:
            try:
                return self._answer(url, method, path, body)
            except ssl.SSLCertVerificationError as error:
                raise RegistryError(
                    f"The certificate of {url} cannot be trusted: {error.verify_message}. Set 'ssl.ca.location' of "
                    f"schema_registry to the authority that signed it."
                ) from error
            except AnswerTooLargeError as error:
                raise RegistryError(f"{url}: {error}.") from error
            except (*FAILURES, NoAnswerError) as error:
                failures.append(f"{url}: {type(error).__name__ if not str(error) else error}")
        raise NoAnswerError("; ".join(failures))

    def _answer(self, url: str, method: str, path: str, body: bytes | None) -> Any:
        status, content = self._exchange(url, method, path, body)
        if status < HTTPStatus.MULTIPLE_CHOICES:
            return _read(content, url)
        if is_passing(status):
            raise NoAnswerError(f"status {status}: {text_of(content)}")
        if status in _DENIED:
            raise RegistryError(
                f"The schema registry at {url} denies {method} {path} (status {status}: {text_of(content)}). Check "
                f"{self._login.names} of schema_registry, and what that user may do."
            )
        refusal = _refusal(status, content)
        if refusal is None:
            raise RegistryError(
                f"{url} does not answer as a schema registry does ({method} {path}: status {status}). Check 'url' of "
                f"schema_registry: it may need a path, as Apicurio's /apis/ccompat/v7."
            )
        raise refusal

    def _exchange(self, url: str, method: str, path: str, body: bytes | None) -> Answer:
        """Send a request, and again with a new token if the one at hand is no longer accepted."""
        answer = self._client.send(method, url + path, {**_HEADERS, **self._login.headers()}, body)
        if answer.status != HTTPStatus.UNAUTHORIZED or not self._login.renew():
            return answer
        return self._client.send(method, url + path, {**_HEADERS, **self._login.headers()}, body)

    def _context(self) -> ssl.SSLContext:
        settings = self.settings
        try:
            context = ssl.create_default_context(cafile=settings.authority)
            if settings.certificate is not None:
                context.load_cert_chain(settings.certificate, settings.key, settings.key_password)
        except (OSError, ssl.SSLError) as error:
            raise RegistryError(
                f"Cannot read the certificates of schema_registry ('ssl.ca.location', 'ssl.certificate.location', "
                f"'ssl.key.location'): {error}"
            ) from error
        return context


def _read(content: bytes, url: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise RegistryError(f"{url} answers with something that is not JSON. Check 'url' of schema_registry.") from None


def _refusal(status: int, content: bytes) -> RefusalError | None:
    """Return what a registry says in its own form; None if it is no registry that answers."""
    try:
        said = orjson.loads(content)
        return RefusalError(status, int(said["error_code"]), str(said.get("message", ""))[:_LONGEST_TEXT])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
