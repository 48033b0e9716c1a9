"""An application and its settings as a command line names them: `file.py:app`, `--config penstock.toml`, `--set lanes=4`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.app import App
from penstock.config import Config, is_secret, setting_of_text
from penstock.errors import ConfigError

_DEFAULT_OBJECT = "app"


def load_app(where: str) -> App:
    """The application at `file.py:object` or `module:object`; the object is `app` if it is not named.

    The module is imported, so what stands at its top level runs.
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
    what = f"{place} has no {name!r}" if found is None else f"{name!r} of {place} is no App but {type(found).__name__}"
    cure = f"its applications are: {', '.join(apps)}" if apps else "it has no App at its top level; write app = App(…) there"
    raise ConfigError(f"{what}; {cure}")


def overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings from `name=value`; `kafka.` and `spark.` begin the names of client and Spark settings.

    Example:
        >>> from penstock.cli.applications import overrides
        >>> overrides(["lanes=2", "kafka.client.id=me", "spark.master=local[2]"])
        {'lanes': 2, 'kafka': {'client.id': 'me'}, 'spark': {'master': 'local[2]'}}
    """
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set: expected name=value, got {pair.partition('=')[0]!r}")
        if is_secret(name, text) and not text.startswith(("env:", "file:")):
            raise ConfigError(f"--set {name}: every user of this machine can see a command line; write env:NAME or file:PATH")
        table, dot, rest = name.partition(".")
        if dot and table == "kafka":
            given.setdefault("kafka", {})[rest] = text
        elif dot and table == "spark":
            given.setdefault("spark", {})["master" if rest == "master" else name] = text
        else:
            given[name] = setting_of_text(name, text)
    return given


def load_config(path: Path | None, pairs: Iterable[str]) -> Config:
    """The configuration from the file, the environment and `--set`, as a run has it."""
    return Config.load(path, **overrides(pairs))


def _from_file(path: Path) -> ModuleType:
    """The file's module, by its own name: Spark's workers import it by that."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.absolute()))
    module = _imported(path.stem)
    loaded = getattr(module, "__file__", None)
    if loaded is None or not path.samefile(loaded):
        raise ConfigError(f"{path}: its name {path.stem!r} is that of another module ({loaded or 'built in'}); rename the file")
    return module


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that the application itself needs
        raise ConfigError(f"there is no module {name!r}; name a file as file.py:app, or a module as package.module:app") from None
