"""Makes text safe for logs: hides secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

from penstock.config import Config
from penstock.settings import Secret, is_secret
from penstock.tokens import TokenSource

HIDDEN = "[hidden]"

_SHORTEST = 4
"""Shorter secrets are not searched for: too many lines would contain them by chance."""

_SETTING = re.compile(
    r"""(?P<name>[A-Za-z][\w.-]*)(?P<sign>["']?\s*[=:]\s*)(?P<value>\[hidden\]|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s,;}\])]+)"""
)
_LOGIN = re.compile(r"://[^/@\s]+:[^/@\s]+@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


class Redactor:
    """Hides secrets in text: the given values, the current token, and whatever follows a name that sounds like a secret's.

    Example:
        >>> Redactor(["hunter2"])("refused: hunter2, sasl.password=other")
        'refused: [hidden], sasl.password=[hidden]'
    """

    def __init__(self, secrets: Iterable[str] = (), tokens: TokenSource | None = None) -> None:
        forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
        longest_first = sorted(forms, key=len, reverse=True)  # a secret may contain another one
        self._tokens = tokens
        self._values = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    @classmethod
    def of(cls, config: Config) -> Redactor:
        """Return a redactor that knows the secrets of a configuration."""
        own = [config.admin_token, config.admin_read_token]
        values = [*config.kafka.values(), *config.spark.values(), *config.schema_registry.values(), *own]
        registry = config.registry_settings
        password = "" if registry is None or registry.user is None else registry.user.partition(":")[2]
        return cls([*(value for value in values if isinstance(value, Secret)), Secret(password)], config.tokens)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        if self._values is not None:
            text = self._values.sub(HIDDEN, text)
        token = None if self._tokens is None else self._tokens.current
        if token is not None:
            text = text.replace(token, HIDDEN)
        if "PRIVATE KEY" in text:
            text = _PRIVATE_KEY.sub(HIDDEN, text)
        if "://" in text:
            text = _LOGIN.sub(f"://{HIDDEN}@", text)
        if "earer" in text or "asic" in text:
            text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        return _SETTING.sub(_hidden_if_secret, text) if is_secret(text) else text


def _forms(secret: str) -> set[str]:
    """Return the forms that a secret can have in text: plain, quoted, in a URL."""
    return {secret, json.dumps(secret)[1:-1], repr(str(secret))[1:-1], quote(secret, safe="")}


def _hidden_if_secret(found: re.Match[str]) -> str:
    return f"{found['name']}{found['sign']}{HIDDEN}" if is_secret(found["name"]) else found[0]
