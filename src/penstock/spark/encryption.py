"""How the processes of Spark on a cluster talk to each other: authenticated, and encrypted so that nobody changes what they say.

Programs travel there as pickles, and with them the key of lane servers and the logins of brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.errors import ConfigError

_AUTHENTICATE = "spark.authenticate"
_TLS = "spark.ssl.rpc.enabled"
_SECURED = {
    _AUTHENTICATE: "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",  # CTR, the default, does not show what was changed (CVE-2025-55039)
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",  # what executors write to their disks beside the stores
}
_UNSET = {
    "spark.network.crypto.cipher": "AES/CTR/NoPadding",
    "spark.network.crypto.authEngineVersion": "1",
    "spark.network.crypto.saslFallback": "true",
}
"""Spark's defaults, where they are not `false`."""


def secured(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a context on a cluster; `given` ones may say that everyone may run code there, or have TLS.

    Example:
        >>> secured({"spark.authenticate": "false"})
        {}
    """
    if not _is_on(given.get(_AUTHENTICATE, "true")):
        return {}
    of_tls = _is_on(given.get(_TLS, "false"))
    return {name: value for name, value in _SECURED.items() if not (of_tls and name.startswith("spark.network.crypto."))}


def check_secured(who: str, setting: Callable[[str, str], str], given: Mapping[str, str], cure: str) -> None:
    """Raise if a context is weaker than the application demands: all of the above, or what it has been `given` instead."""
    demanded = secured({**given, _TLS: setting(_TLS, "false")})
    found = {name: setting(name, _UNSET.get(name, "false")) for name in demanded}
    weaker = [
        f"{name} is {found[name]}, not {value}"
        for name, value in demanded.items()
        if found[name].lower() not in {value.lower(), given.get(name, value).lower()}
    ]
    if weaker:
        raise ConfigError(
            f"{who} is weaker than the application demands: {'; '.join(weaker)}. {cure} Or say in the table spark "
            f'of penstock.toml what is enough: "{_AUTHENTICATE}" = "false" if everyone may run code there.'
        )


def _is_on(value: str) -> bool:
    return value.strip().lower() == "true"
