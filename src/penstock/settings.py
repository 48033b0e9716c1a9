"""`Settings` of Kafka's clients and of Spark: `Secret`, a value that must not be shown, and what may not be set."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import ConfigError
from penstock.state.remote.accepting import Ports

_log = logging.getLogger(__name__)

CLIENTS = ("producer.", "main.consumer.", "restore.consumer.")
"""As in Kafka Streams, a setting with one of these prefixes applies to one client only."""

HIDDEN = "[hidden]"
_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token(?!\.endpoint\.url$|_provider$)|credential|jaas|private\.?key|key\.pem|keystore\.key$|basic\.auth|user\.info"
    r"|access\.?key|oauthbearer\.config|assertion"
)
_SECRET_VALUE = re.compile(r"://[^/@\s]+:[^/@\s]+@")
_MAX_PORT = 65_535
_SETTING_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OWN = {
    "group.id": "the application's id is the group",
    "transactional.id": "it is derived from the application's id",
    "enable.auto.commit": "offsets are committed together with the results",
    "auto.offset.reset": "the topology decides where a topic without an offset begins",
    "partitioner": "a key decides as with Java's producer, whoever writes; for another partition, use to(partitioner=…)",
    "transaction.timeout.ms": "set transaction_timeout instead",
}
_EXACTLY_ONCE = {
    "isolation.level": ("read_committed",),
    "enable.idempotence": ("true",),
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
}
_VERIFIED = {
    "ssl.endpoint.identification.algorithm": ("https", "Give the broker a certificate for the host name that clients use."),
    "enable.ssl.certificate.verification": ("true", "Set ssl.ca.location to the authority that signed its certificate."),
}
"""Without these, TLS does not protect against a man in the middle."""
OAUTH_ENDPOINTS = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwks.endpoint.url")
NO_CONNECT = "Lanes cannot run on Spark Connect: its clients have no JVM, to which the tasks of lanes could be submitted."
"""Why a session by `SparkSession.builder.remote` is refused."""

_FIT_OF_SPARK = {
    "spark.speculation": ("false", "only one task may write to a lane's store"),
    "spark.python.worker.killOnIdleTimeout": ("false", "the tasks in which lanes run send nothing to their executor"),
    "spark.executor.pyspark.memory": ("", "stores are mapped into memory, and the limit would count their files"),
    "spark.task.cpus": ("1", "each slot counts as a core, and one core is left for other jobs"),
}
"""The only value with which lanes can run on Spark, "" for none, and why."""


class Secret(str):
    """A setting's value that shows as `[hidden]` however it is printed, and in a pickle; `reveal` returns it.

    It can be compared, encoded and searched like any text. `str` and formatting give `[hidden]`, so code that passes the value
    on must call `reveal`.

    Example:
        >>> from penstock.settings import Secret
        >>> password = Secret("s3cr3t")
        >>> print(password, f"{password:>10}", [password], "%s" % password)
        [hidden]   [hidden] [[hidden]] [hidden]
        >>> password == "s3cr3t", password.reveal()
        (True, 's3cr3t')
    """

    __slots__ = ()

    def __new__(cls, value: str) -> Secret:  # noqa: PYI034 - a secret that is one already stays what it is
        """Return the value as a secret; one that already is a secret is returned as it is, because `str` would hide it."""
        return value if isinstance(value, Secret) else super().__new__(cls, value)

    def reveal(self) -> str:
        """The secret itself, for a client."""
        return str.__str__(self)

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, form: str) -> str:
        return format(HIDDEN, form)

    def __reduce_ex__(self, protocol: object) -> tuple[type[Secret], tuple[str]]:
        return Secret, (HIDDEN,)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self


class Settings(Mapping[str, str]):
    """Settings of a client or of Spark by name; secrets show as `[hidden]` wherever they are printed."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name: Secret(value) if is_secret(name, value) else value for name, value in values.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


def revealed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with secrets as plain text, for a client. Do not keep the result."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}


def resolved(name: str, value: str, environment: Mapping[str, str]) -> str:
    """Return the value, read from the environment or a file if it is a reference.

    `file:` in a setting of Spark is a URL, unless the setting is a secret.
    """
    kind, colon, where = value.partition(":")
    if kind == "env" and colon:
        if where not in environment:
            raise ConfigError(f"{name}: environment variable {where!r} is not set.")
        return environment[where]
    if kind == "file" and colon and (is_secret(name) or not name.startswith("spark.")):
        try:
            with Path(where).open(encoding="utf-8") as file:
                if is_secret(name) and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    _log.warning("%s: other users may read or write %s; run chmod 600 on it", name, where)
                return file.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: cannot read {where!r}: {type(error).__name__}") from None
    return value


def is_secret(name: str, value: str = "") -> bool:
    """Whether a setting must not be shown: because of its name, or because its value is a URL with a password."""
    return bool(_SECRET_NAME.search(name.lower()) or _SECRET_VALUE.search(value))


def check_kafka(kafka: Mapping[str, str], is_exactly_once: bool) -> None:
    """Raise if a setting of Kafka's clients cannot work."""
    if not kafka.get("bootstrap.servers", "").strip():
        raise ConfigError(
            'kafka: "bootstrap.servers" is missing. Set it in penstock.toml, PENSTOCK_BOOTSTRAP_SERVERS or bootstrap_servers=.'
        )
    for full_name, value in kafka.items():
        prefix = next((client for client in CLIENTS if full_name.startswith(client)), "")
        name = full_name.removeprefix(prefix)
        if not _SETTING_NAME.fullmatch(name):
            raise ConfigError(f"kafka: invalid setting name {full_name!a}: use letters, digits, '.', '_' and '-'.")
        if value != value.strip() and not is_secret(name):
            raise ConfigError(f"kafka: {full_name!r} has blanks around its value. Remove them.")
        if name in _OWN:
            raise ConfigError(f"kafka: {full_name!r} cannot be set: {_OWN[name]}.")
        allowed = _EXACTLY_ONCE.get(name)
        if is_exactly_once and allowed and value.lower() not in allowed:
            raise ConfigError(
                f"kafka: {full_name!r} must be {allowed[0]!r} under exactly_once. Leave it out, or choose at_least_once."
            )
        if name in _VERIFIED and value.lower() != _VERIFIED[name][0]:
            safe, cure = _VERIFIED[name]
            raise ConfigError(f"kafka: {full_name!r} must be {safe!r}, or anyone could pose as the broker. {cure}")
        if name in OAUTH_ENDPOINTS and not _is_https(value):
            raise ConfigError(f"kafka: {full_name!r} must be an https:// URL without a password.")


def _is_https(url: str) -> bool:
    """Whether credentials may be sent to a URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and not re.search(r"[\s,@\"'\\]", url)
    except ValueError:
        return False


def check_copies(uri: object, store_engine: str) -> None:
    """Raise if lanes cannot be copied to that place."""
    if uri is None:
        return
    if not isinstance(uri, str) or not uri.strip() or "\0" in uri:
        raise ConfigError("state_copies: expected a directory or a URI.")
    if "://" in uri and urlsplit(uri).password is not None:
        raise ConfigError("state_copies: a URI with a password would be logged. Put credentials into the environment.")
    if store_engine != "lmdb":
        raise ConfigError(f"state_copies: stores of {store_engine} cannot be copied. Set store_engine to lmdb, or remove it.")


def is_local(spark: Mapping[str, str]) -> bool:
    """Whether Spark runs in a single process on this machine."""
    return spark.get("master", "local").split("[", maxsplit=1)[0] == "local"


def check_lanes_fit(who: str, setting: Callable[[str, str], str], cure: str) -> None:
    """Raise if lanes cannot run with the settings that Spark has; `setting` returns one by its name and its default."""
    problems = [
        f"{name!r} {f'must be {fit!r}' if fit else 'cannot be set'}: {why}"
        for name, (fit, why) in _FIT_OF_SPARK.items()
        if setting(name, fit).strip().lower() != fit
    ]
    if problems:
        raise ConfigError(f"{who}: {'; '.join(problems)}. {cure}")


def check_spark(spark: Mapping[str, str]) -> None:
    """Raise if a setting of Spark cannot work."""
    for name in spark:
        if name != "master" and not (name.startswith("spark.") and _SETTING_NAME.fullmatch(name)):
            raise ConfigError(f"spark: unknown setting {name!a}. Use 'master', or a name that begins with 'spark.'.")
    if "spark.remote" in spark or spark.get("master", "").startswith("sc://"):
        raise ConfigError(f"spark: {NO_CONNECT} Set master to that of the cluster.")
    check_lanes_fit("spark", spark.get, "Remove what is named.")
    is_open = spark.get("spark.authenticate", "true").strip().lower() == "false"
    if spark.get("master", "").startswith("spark://") and not is_open and not spark.get("spark.authenticate.secret"):
        raise ConfigError(
            "spark: 'spark.authenticate.secret' is missing. Set it to the secret of the cluster's master and workers, or "
            "'spark.authenticate' to false if everyone who reaches the cluster may run code on it."
        )


def check_writers(is_spread: bool, is_exactly_once: bool, is_traced: bool, has_tokens: bool) -> None:
    """Raise if executors cannot write."""
    conditions = {
        "the application runs on a cluster (spark.master)": is_spread,
        "guarantee is exactly_once": is_exactly_once,
        "tracing is off": not is_traced,
        "there is no token_provider": not has_tokens,
    }
    for condition, holds in conditions.items():
        if not holds:
            raise ConfigError(f"writers: executors can write only if {condition}. Set writers to driver.")


def port_range(name: str, value: object) -> Ports:
    """Return the ports of a range; raises if it is none.

    Example:
        >>> port_range("cluster_ports", "7100-7199")
        Ports(first=7100, last=7199)
    """
    found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", value) if isinstance(value, str) else None
    ports = Ports(0, 0) if found is None else Ports(int(found[1]), int(found[2]))
    if not 0 < ports.first <= ports.last <= _MAX_PORT:
        raise ConfigError(f"{name}: expected the first and the last port of a range, such as 7100-7199.")
    return ports


def endpoint(name: str, value: object, otherwise: str = "") -> tuple[str, int]:
    """Return the host and the port of an address; raises if it is none."""
    host, _, port = str(value).rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _MAX_PORT:
        raise ConfigError(f"{name}: expected host:port{otherwise}.")
    return host.strip("[]"), int(port)
