"""Who may do what: tokens, and what they allow."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.config import Config
from penstock.errors import ConfigError

_TOKEN = re.compile(r"[!-~]{16,}")


class Access(IntEnum):
    """What somebody may do; each includes what stands above it."""

    NOTHING = 0
    """Ask whether the application lives and is ready."""
    READ = 1
    OPERATE = 2


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a server. Without any, everybody who reaches it may do everything."""

    operate: bytes | None = field(repr=False)
    read: bytes | None = field(repr=False)

    @classmethod
    def of(cls, config: Config) -> Tokens:
        """Those of a configuration."""
        for name in ("admin_token", "admin_read_token"):
            token = getattr(config, name)
            if token is not None and not _TOKEN.fullmatch(token):
                cure = "`openssl rand -hex 32` makes a good one"
                raise ConfigError(f"{name}: a token is at least 16 characters of ASCII without spaces; {cure}")
        if config.admin_token is not None and config.admin_token == config.admin_read_token:
            raise ConfigError("admin_read_token: it is the same as admin_token, and would allow everything; use another one")
        return cls(*(None if token is None else token.encode() for token in (config.admin_token, config.admin_read_token)))

    def granted(self, authorization: bytes) -> Access:
        """What a request with this `Authorization` header may do; takes as long for a wrong token as for a right one."""
        if self.operate is None and self.read is None:
            return Access.OPERATE
        scheme, _, token = authorization.partition(b" ")
        operates = hmac.compare_digest(token, self.operate or b"") and self.operate is not None
        reads = hmac.compare_digest(token, self.read or b"") and self.read is not None
        if scheme.lower() != b"bearer":
            return Access.NOTHING
        return Access.OPERATE if operates else Access.READ if reads else Access.NOTHING
