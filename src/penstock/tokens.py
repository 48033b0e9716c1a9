"""Tokens for brokers with SASL OAUTHBEARER: a function of the user's provides them; `TokenSource` asks it for all clients."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import BrokerError, ConfigError
from penstock.extras import provided
from penstock.settings import Secret

_log = logging.getLogger(__name__)

GROUP = "penstock.token_providers"
"""The group of entry points in which token providers are found."""

MECHANISM = "OAUTHBEARER"

_VALUE = re.compile(r"[!-~]+")
_EXTENSION = re.compile(r"[A-Za-z]+")
_LONGEST_S = 100 * 365 * 86_400
_SPARE_S = 10.0
"""A token that expires sooner is not used for another connection."""
_WAITS_S = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Token:
    """A token, when it expires in seconds since 1970, and extensions that some brokers want with it.

    Example:
        >>> from penstock.tokens import Token
        >>> Token("eyJhbGciOi", expires_at=1_900_000_000, extensions={"logicalCluster": "lkc-1"})
        Token(value=[hidden], expires_at=1900000000, extensions={'logicalCluster': 'lkc-1'})
    """

    value: str
    expires_at: float
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Not left to the client: it does not ask again after a value of a wrong type, and some versions of it crash.
        value: object = self.value
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValueError("Token: value must be a text of printable ASCII characters without blanks.")
        if not isinstance(self.expires_at, (int, float)):
            raise TypeError(f"Token: expires_at must be a number of seconds, not {type(self.expires_at).__name__}.")
        extensions: Mapping[str, object] = self.extensions
        for name, text in extensions.items():
            if not _EXTENSION.fullmatch(name) or not isinstance(text, str) or "\0" in text:
                raise ValueError(f"Token: extension {name!a} must have a name of letters and a text as its value.")
        object.__setattr__(self, "value", Secret(self.value))


TokenProvider = Callable[[], Token]
"""Returns a new token."""


class TokenSource:
    """Asks a provider, one thread at a time, and shares a token between clients until half of its time is over.

    `provider` is a function, or the name of an entry point. If it fails, it is asked again for `patience_s`. It can be pickled if
    the function can, or if it is a name; what it has learnt stays in its process.
    """

    def __init__(
        self,
        provider: str | TokenProvider,
        patience_s: float,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.provider: str | TokenProvider = provider
        self._patience_s = patience_s
        self._sleep = sleep
        self._clock = clock
        self._ask = _loaded(provider)
        self._asking = threading.Lock()
        self._known: Token | None = None
        self._fresh_until = 0.0
        self._problem: str | None = None

    def __reduce__(self) -> tuple[type[TokenSource], tuple[str | TokenProvider, float]]:
        return TokenSource, (self.provider, self._patience_s)

    def with_patience(self, patience_s: float) -> TokenSource:
        """Return a source that waits that long for a token: itself, with its current token, if it already does."""
        return self if patience_s == self._patience_s else TokenSource(self.provider, patience_s)

    def __repr__(self) -> str:
        return f"TokenSource({self.provider!r})"

    def __call__(self, about: str | None) -> tuple[str, float, str, dict[str, str]]:
        """Return what librdkafka's `oauth_cb` has to; an error makes it ask again in ten seconds."""
        token = self._token()
        return Secret(token.value).reveal(), float(token.expires_at), "", dict(token.extensions)

    def ensure(self) -> None:
        """Return when there is a token, so that a client need not wait for one; raise `BrokerError` if there is none in time."""
        deadline = time.monotonic() + self._patience_s
        waits = iter(_WAITS_S)
        wait_s = _WAITS_S[-1]
        while True:
            try:
                self._token()
            except BrokerError:
                wait_s = next(waits, wait_s)
                if time.monotonic() + wait_s > deadline:
                    raise
            else:
                return
            self._sleep(wait_s)

    def problem(self) -> str | None:
        """Return why the last request failed; None if it did not."""
        return self._problem

    @property
    def current(self) -> str | None:
        """The token that clients use, which must not be logged."""
        known = self._known
        return None if known is None else Secret(known.value).reveal()

    def _token(self) -> Token:
        """Return a token; if the provider fails, the old one while it is valid."""
        with self._asking:
            now, known = self._clock(), self._known
            if known is not None and now < self._fresh_until:
                return known
            try:
                known = self._known = self._new(now)
            except BrokerError:
                if known is None or now > known.expires_at - _SPARE_S:
                    raise
            else:
                self._fresh_until = now + (known.expires_at - now) / 2
            return known

    def _new(self, now: float) -> Token:
        """Ask for a new token."""
        try:
            token = _checked(self._ask(), now)
        except Exception as error:
            self._problem = f"token_provider {_name(self.provider)} failed with {type(error).__name__}: see the log"
            _log.warning("token_provider %s failed, and is asked again", _name(self.provider), exc_info=True)
            raise BrokerError(f"There is no token for the brokers: {self._problem}.") from error
        self._problem = None
        return token


def check_mechanism(kafka: Mapping[str, str]) -> None:
    """Raise unless clients log in with the tokens of a provider."""
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "none"
    if mechanism.upper() != MECHANISM:
        raise ConfigError(
            f'token_provider: brokers get a token only if "sasl.mechanism" of kafka is "{MECHANISM}", not {mechanism!r}.'
        )
    if kafka.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        raise ConfigError(
            'token_provider: with "sasl.oauthbearer.method" = "oidc", the client gets tokens itself. Set one of the two.'
        )


def _loaded(provider: object) -> TokenProvider:
    found: Any = provided(GROUP, provider, "token_provider") if isinstance(provider, str) else provider
    if not callable(found):
        raise ConfigError(f"token_provider: expected a function or the name of an entry point, not {type(found).__name__}.")
    ask: TokenProvider = found
    return ask


def _checked(token: object, now: float) -> Token:
    if not isinstance(token, Token):
        raise TypeError(f"it returned {type(token).__name__}, not penstock.tokens.Token")
    if token.expires_at > now + _LONGEST_S:
        raise ValueError("expires_at is not in seconds since 1970: are these milliseconds?")
    if token.expires_at <= now + _SPARE_S:
        raise ValueError(f"the token expires within {_SPARE_S:g} s")
    return token


def _name(provider: object) -> str:
    return repr(provider) if isinstance(provider, str) else getattr(provider, "__qualname__", type(provider).__name__)
