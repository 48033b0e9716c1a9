"""Loads an application and its settings from the command line: `file.py:app`, `--config penstock.toml`, `--set lanes=4`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.app import App
from penstock.config import Config
from penstock.errors import ConfigError
from penstock.setting_values import setting_of_text
from penstock.settings import is_secret

_DEFAULT_OBJECT = "app"


def load_app(where: str) -> App:
    """Return the application at `file.py:object` or `module:object`; without `:object`, the one called `app`.

    The module is imported, so its top-level code runs.
    """
    place, _, name = where.rpartition(":") if ":" in where else (where, "", _DEFAULT_OBJECT)
    if place.endswith(".py"):
        module = _from_file(Path(place))
    else:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
        module = _imported(place)
    found = getattr(module, name, None)
    if isinstance(found, App):
        return found
    apps = sorted(known for known, value in vars(module).items() if isinstance(value, App))
    what = f"{place} has no {name!r}" if found is None else f"{name!r} in {place} is of type {type(found).__name__}, not App"
    cure = f"Applications there: {', '.join(apps)}." if apps else "Add app = App(…) at its top level."
    raise ConfigError(f"{what}. {cure}")


def overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Return settings from `name=value`; those of tables start with `kafka.`, `schema_registry.` and `spark.`.

    Example:
        >>> from penstock.cli.applications import overrides
        >>> overrides(["lanes=2", "kafka.client.id=me", "spark.master=local[2]"])
        {'lanes': 2, 'kafka': {'client.id': 'me'}, 'spark': {'master': 'local[2]'}}
    """
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set: expected name=value, got {pair.partition('=')[0]!r}.")
        if is_secret(name, text) and not text.startswith(("env:", "file:")):
            raise ConfigError(f"--set {name}: all users of this machine can see the command line. Write env:NAME or file:PATH.")
        table, dot, rest = name.partition(".")
        if dot and table in {"kafka", "schema_registry"}:
            given.setdefault(table, {})[rest] = text
        elif dot and table == "spark":
            given.setdefault("spark", {})["master" if rest == "master" else name] = text
        else:
            given[name] = setting_of_text(name, text)
    return given


def load_config(path: Path | None, pairs: Iterable[str]) -> Config:
    """Return the configuration from the file, the environment and `--set`, as `run` uses it."""
    return Config.load(path, **overrides(pairs))


def _from_file(path: Path) -> ModuleType:
    """Import a file as a module of its own name, by which Spark's workers import it."""
    if not path.is_file():
        raise ConfigError(f"There is no file {str(path)!r}.")
    sys.path.insert(0, str(path.parent.absolute()))
    module = _imported(path.stem)
    loaded = getattr(module, "__file__", None)
    if loaded is None or not path.samefile(loaded):
        raise ConfigError(f"{path}: another module is called {path.stem!r} ({loaded or 'built in'}). Rename the file.")
    return module


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the application itself imports a missing module
        raise ConfigError(
            f"There is no module {name!r}. Give a file as file.py:app, or a module as package.module:app."
        ) from None
