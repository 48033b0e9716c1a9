"""How settings are written: in a TOML file, in environment variables, as arguments; each is read as the type of its field."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, TopologyError
from penstock.timing import duration_ms

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # not there on newer Pythons

DEFAULT_FILE = Path("penstock.toml")
VARIABLE_PREFIX = "PENSTOCK_"
TABLES = ("kafka", "spark", "schema_registry")
SHORT = {"bootstrap_servers": ("kafka", "bootstrap.servers"), "schema_registry_url": ("schema_registry", "url")}
"""Settings of tables that have a name of their own."""
_MAX_INT32 = 2**31 - 1
RANGES = {
    "lanes": (1, 10_000),
    "shards": (1, 10_000),
    "epoch_interval": (0, _MAX_INT32),
    "max_epoch_records": (1, _MAX_INT32),
    "max_epoch_bytes": (1, 1 << 40),
    "small_epoch_records": (0, _MAX_INT32),
    "blocking_threads": (1, 1_000),
    "large_backlog_records": (0, _MAX_INT32),
    "epochs_in_flight": (0, 8),
    "transaction_timeout": (1_000, _MAX_INT32),
    "broker_timeout": (1_000, _MAX_INT32),
    "replication_factor": (-1, 32_767),
    "topic_partitions": (1, 10_000),
    "epoch_timeout": (1_000, _MAX_INT32),
    "standby_timeout": (2_000, _MAX_INT32),
    "state_copy_interval": (1_000, _MAX_INT32),
}
DURATIONS = ("epoch_interval", "transaction_timeout", "broker_timeout", "epoch_timeout", "standby_timeout", "state_copy_interval")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine": ("spark", "local"),
    "store_engine": ("lmdb", "rocksdb"),
    "on_lost_input": ("fail", "continue"),
    "writers": ("driver", "executors"),
    "log_format": ("auto", "json", "text"),
    "log_level": ("DEBUG", "INFO", "WARNING", "ERROR"),
}
PATHS = ("state_dir", "admin_certificate", "admin_key")
LISTS, SWITCHES = ("admin_hosts", "plugins"), ("columns", "create_topics", "standby", "tracing")
REFERENCES = ("admin_token", "admin_read_token")


class Guarantee(Enum):
    """How often a record takes effect if there is a failure."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


def field_of(name: str) -> str:
    """Return the field of a setting."""
    return f"{name}_ms" if name in DURATIONS else name


def read_toml(path: Path) -> dict[str, object]:
    """Return the settings of a file."""
    try:
        with path.open("rb") as file:
            settings: dict[str, object] = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"Cannot read {str(path)!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}") from None
    return settings


def from_environment(environment: Mapping[str, str], names: Collection[str]) -> dict[str, object]:
    """Return the settings of our variables. A misspelt one is an error; an unrelated variable may have the same prefix."""
    given: dict[str, object] = {}
    for variable, text in environment.items():
        name = variable.removeprefix(VARIABLE_PREFIX).lower()
        if not variable.startswith(VARIABLE_PREFIX) or variable.startswith(f"{VARIABLE_PREFIX}FAULT"):
            continue
        if name in names and name not in TABLES:
            given[name] = setting_of_text(name, text)
        elif nearest := get_close_matches(name, names, n=1, cutoff=0.8):
            raise ConfigError(f"environment: unknown variable {variable}. Did you mean {VARIABLE_PREFIX}{nearest[0].upper()}?")
    return given


def setting_of_text(name: str, text: str) -> object:
    """Convert a setting from the text of an environment variable or a command line."""
    return _whole(text) if name in RANGES and name not in DURATIONS else text


def _whole(text: str) -> int | str:
    """The number, if the text is one; other text is refused later, by name."""
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) else text


def merge(given: dict[str, Any], more: Mapping[str, object], source: str, names: Collection[str]) -> None:
    """Add the settings of a source to those that are given; `names` are all that there are."""
    for name, value in more.items():
        if name in SHORT:
            table, full_name = SHORT[name]
            given[table][full_name] = value
        elif name in TABLES:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{source}: {name} must be a table of settings, not {type(value).__name__}.")
            given[name].update(_flat(value))
        elif name in names:
            given[name] = _read(name, value)
        else:
            nearest = get_close_matches(name, names, n=1)
            cure = f"Did you mean {nearest[0]!r}?" if nearest else f"Known settings: {', '.join(sorted(names))}."
            raise ConfigError(f"{source}: unknown setting {name!a}. {cure}")


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested tables: TOML reads `bootstrap.servers = …` without quotes as a table within a table."""
    flat: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _read(name: str, value: Any) -> object:
    """Convert a setting to the type of its field; values that cannot be converted are left to the checks."""
    if name in DURATIONS:
        try:
            return duration_ms(value, name)  # raises for other types
        except TopologyError:
            raise ConfigError(f'{name}: expected a number and a unit, such as "250ms", "5s" or "1h".') from None
    if name == "guarantee" and not isinstance(value, Guarantee):
        kinds = [kind.value for kind in Guarantee]
        if value not in kinds:
            raise ConfigError(f"guarantee: expected one of {', '.join(kinds)}.")
        return Guarantee(value)
    if name in PATHS:
        if not isinstance(value, (str, Path)) or not str(value).strip() or "\0" in str(value):
            raise ConfigError(f"{name}: expected a path.")
        return Path(value)
    if name == "state_copies" and isinstance(value, Path):
        return str(value)
    if name in LISTS:
        return _list(name, value)
    if name == "log_level" and isinstance(value, str):
        return value.upper()
    if name in SWITCHES and isinstance(value, str):  # the environment has only text
        return {"true": True, "false": False}.get(value.lower(), value)
    return value


def _list(name: str, value: object) -> tuple[str, ...]:
    """Convert a list of names, or a text with commas, as in the environment."""
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) and item for item in items):
        raise ConfigError(f"{name}: expected a list of names.")
    return tuple(items)


def text_of(name: str, value: object) -> str:
    """Return a value of a table as text."""
    if not isinstance(value, (str, int, float)):
        raise ConfigError(f"{name}: expected text, a number or a boolean, got {type(value).__name__}.")
    return value if isinstance(value, str) else str(value).lower()


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Raise if a number is too small or too large."""
    if value is None and name in ("lanes", "shards", "epoch_interval", "max_epoch_bytes"):
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: expected a whole number.")
    if not low <= value <= high:
        unit = " ms" if name in DURATIONS else ""
        raise ConfigError(f"{name}: expected a value between {low} and {high}{unit}.")
