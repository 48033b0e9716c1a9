"""Which PySpark is there, wherever it comes from, and one error if there is none. Loads nothing of it before it is asked."""

from __future__ import annotations

import re
from importlib.util import find_spec

from penstock.errors import ConfigError

NEEDED = "pyspark>=4.2,<4.4"
"""As in `pyproject.toml`."""

_OLDEST, _TOO_NEW = (4, 2), (4, 4)


def require_pyspark() -> None:
    """Raise if PySpark, or what it speaks with its JVM through, cannot be imported."""
    missing = _missing()
    if missing:
        cure = f"Install {NEEDED}, or set engine = local, which runs without Spark."
        raise ConfigError(f"engine = spark needs {' and '.join(missing)}, which cannot be found. {cure}")


def pyspark_version() -> str | None:
    """Return the version of the PySpark that is imported here; None if it cannot be.

    That of a platform may be no installed package, and may come before one that is.
    """
    if _missing():
        return None
    from pyspark.version import __version__  # noqa: PLC0415 - may be missing

    return str(__version__)


def is_supported(version: str) -> bool:
    """Whether a version of PySpark is one of those that Penstock is made for."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and _OLDEST <= (int(found.group(1)), int(found.group(2))) < _TOO_NEW


def _missing() -> list[str]:
    return [name for name in ("pyspark", "py4j") if find_spec(name) is None]
