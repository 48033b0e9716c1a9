"""How to reach a schema registry: the settings of the table `schema_registry`, by Confluent's names, checked once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from penstock.errors import ConfigError

URL = "url"
_USER = "basic.auth.user.info"
_BEARER = "bearer.auth.token"
_SOURCE = "bearer.auth.credentials.source"
_ISSUER = "bearer.auth.issuer.endpoint.url"
_CLIENT = "bearer.auth.client.id"
_CLIENT_LOCK = "bearer.auth.client.secret"
_SCOPE = "bearer.auth.scope"
_CLUSTER = "bearer.auth.logical.cluster"
_POOL = "bearer.auth.identity.pool.id"
_AUTHORITY = "ssl.ca.location"
_CERTIFICATE = "ssl.certificate.location"
_KEY = "ssl.key.location"
_KEY_LOCK = "ssl.key.password"
_REQUEST = "request.timeout.ms"
_RETRY = "retry.timeout.ms"
_REGISTER = "auto.register.schemas"
_LATEST = "use.latest.version"
_NORMALIZE = "normalize.schemas"

NAMES = (
    URL,
    _USER,
    _BEARER,
    _SOURCE,
    _ISSUER,
    _CLIENT,
    _CLIENT_LOCK,
    _SCOPE,
    _CLUSTER,
    _POOL,
    _AUTHORITY,
    _CERTIFICATE,
    _KEY,
    _KEY_LOCK,
    _REQUEST,
    _RETRY,
    _REGISTER,
    _LATEST,
    _NORMALIZE,
)
_MAX_TIMEOUT_MS = 240_000
"""Longer retries would outlast an epoch (`epoch_timeout`), and hide what is wrong."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """How to get tokens: with a client's credentials from the OAuth server at `url`. `headers` go to the registry with each."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How to reach a registry, and how serdes use it unless they say otherwise.

    Attributes:
        urls: Its addresses; the next is tried if one does not answer.
        user: `name:password` for basic authentication.
        token: A bearer token.
        oauth: How to get bearer tokens.
        authority: The certificates to trust, a PEM file; by default, those of the system.
        certificate: The client's own certificate chain, a PEM file.
        key: Its private key, a PEM file.
        key_password: The password of that file.
        request_timeout_s: How long one request may take.
        retry_timeout_s: How long a request is repeated while the registry does not answer, or answers that it cannot now.
        register: Whether a new schema is registered; if not, it must be known.
        use_latest: Whether values are written with the latest schema of their subject, not with that of the serde.
        normalize: Whether the registry normalizes schemas before it compares them.
    """

    urls: tuple[str, ...]
    user: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    oauth: OAuth | None = None
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    request_timeout_s: float = 5.0
    retry_timeout_s: float = 60.0
    register: bool = True
    use_latest: bool = False
    normalize: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> RegistrySettings:
        """Read settings by their names; `url` is required.

        Example:
            >>> RegistrySettings.of({"url": "https://registry:8081", "basic.auth.user.info": "me:s3cr3t"}).urls
            ('https://registry:8081',)
        """
        for name in settings:
            if name not in NAMES:
                raise ConfigError(f"schema_registry: unknown setting {name!a}. Known settings: {', '.join(NAMES)}.")
        if _KEY in settings and _CERTIFICATE not in settings:
            raise ConfigError(f"schema_registry: {_KEY!r} needs {_CERTIFICATE!r}.")
        logins = [name for name in (_USER, _BEARER, _ISSUER) if name in settings]
        if len(logins) > 1:
            raise ConfigError(f"schema_registry: set {logins[0]!r} or {logins[1]!r}, not both.")
        if ":" not in settings.get(_USER, ":"):
            raise ConfigError(f"schema_registry: {_USER!r} must be 'name:password'.")
        return cls(
            urls=_urls(settings.get(URL, "")),
            user=settings.get(_USER),
            token=settings.get(_BEARER),
            oauth=_oauth(settings),
            authority=settings.get(_AUTHORITY),
            certificate=settings.get(_CERTIFICATE),
            key=settings.get(_KEY),
            key_password=settings.get(_KEY_LOCK),
            request_timeout_s=_seconds(settings, _REQUEST, 5_000),
            retry_timeout_s=_seconds(settings, _RETRY, 60_000),
            register=_flag(settings, _REGISTER, default=True),
            use_latest=_flag(settings, _LATEST, default=False),
            normalize=_flag(settings, _NORMALIZE, default=False),
        )

    @property
    def exposes_credentials(self) -> bool:
        """Whether a password, a secret or a token is sent unencrypted."""
        has_credentials = self.user is not None or self.token is not None or self.oauth is not None
        return has_credentials and any(url.startswith("http:") for url in self.urls)


def _oauth(settings: Mapping[str, str]) -> OAuth | None:
    given = [name for name in (_ISSUER, _CLIENT, _CLIENT_LOCK, _SCOPE, _CLUSTER, _POOL) if name in settings]
    source = "OAUTHBEARER" if given else "STATIC_TOKEN" if _BEARER in settings else None
    if settings.get(_SOURCE, source) != source:
        raise ConfigError(
            f"schema_registry: {_SOURCE!r} must be 'OAUTHBEARER' with {_ISSUER!r}, 'STATIC_TOKEN' with {_BEARER!r}."
        )
    if not given:
        return None
    for name in (_ISSUER, _CLIENT, _CLIENT_LOCK):
        if not settings.get(name):
            raise ConfigError(f"schema_registry: {given[0]!r} needs {name!r}.")
    url = settings[_ISSUER]
    if not _is_url(url) or urlsplit(url).scheme != "https" or "@" in urlsplit(url).netloc:
        raise ConfigError(f"schema_registry: {_ISSUER!r} must be an https:// URL without a password.")
    named = {"target-sr-cluster": settings.get(_CLUSTER), "Confluent-Identity-Pool-Id": settings.get(_POOL)}
    headers = tuple((header, value) for header, value in named.items() if value)
    if not all(value.isprintable() and value.isascii() for _, value in headers):
        raise ConfigError(f"schema_registry: {_CLUSTER!r} and {_POOL!r} must be plain text.")
    return OAuth(url, settings[_CLIENT], settings[_CLIENT_LOCK], settings.get(_SCOPE), headers)


def _urls(text: str) -> tuple[str, ...]:
    urls = tuple(url.strip().rstrip("/") for url in text.split(",") if url.strip())
    if not urls:
        raise ConfigError(
            'schema_registry: "url" is missing. Set it in penstock.toml, PENSTOCK_SCHEMA_REGISTRY_URL or schema_registry_url=.'
        )
    for url in urls:
        if not _is_url(url):
            raise ConfigError("schema_registry: 'url' must be an http:// or https:// URL.")
        if "@" in urlsplit(url).netloc:
            raise ConfigError(f"schema_registry: 'url' must not contain a password. Set {_USER!r} instead.")
    return urls


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and not re.search(r"[\s\x00-\x1f?#]", url)


def _seconds(settings: Mapping[str, str], name: str, default_ms: int) -> float:
    text = settings.get(name, str(default_ms))
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= _MAX_TIMEOUT_MS:
        raise ConfigError(f"schema_registry: {name!r} must be a number of milliseconds between 1 and {_MAX_TIMEOUT_MS}.")
    return int(text) / 1_000


def _flag(settings: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = settings.get(name)
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise ConfigError(f"schema_registry: {name!r} must be true or false.")
    return text.lower() == "true"
