"""Access control: tokens, and what each allows."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.config import Config
from penstock.errors import ConfigError

_TOKEN = re.compile(r"[!-~]{16,}")


class Access(IntEnum):
    """What a caller may do; each level includes those above it."""

    NOTHING = 0
    """Only the health checks: whether the application is live and ready."""
    READ = 1
    OPERATE = 2


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a server. Without any, every caller may do everything."""

    operate: bytes | None = field(repr=False)
    read: bytes | None = field(repr=False)

    @classmethod
    def of(cls, config: Config) -> Tokens:
        """Return the tokens of a configuration; raise `ConfigError` if one is weak."""
        for name in ("admin_token", "admin_read_token"):
            token = getattr(config, name)
            if token is not None and not _TOKEN.fullmatch(token):
                cure = "create one with `openssl rand -hex 32`"
                raise ConfigError(f"{name}: a token needs at least 16 ASCII characters and no spaces; {cure}")
        if config.admin_token is not None and config.admin_token == config.admin_read_token:
            raise ConfigError("admin_read_token: must differ from admin_token, which allows everything; use another token")
        return cls(*(None if token is None else token.encode() for token in (config.admin_token, config.admin_read_token)))

    def granted(self, authorization: bytes) -> Access:
        """Return what a request with this `Authorization` header may do. A wrong token takes as long as a right one."""
        if self.operate is None and self.read is None:
            return Access.OPERATE
        scheme, _, token = authorization.partition(b" ")
        operates = hmac.compare_digest(token, self.operate or b"") and self.operate is not None
        reads = hmac.compare_digest(token, self.read or b"") and self.read is not None
        if scheme.lower() != b"bearer":
            return Access.NOTHING
        return Access.OPERATE if operates else Access.READ if reads else Access.NOTHING
