"""The jars of Spark's Kafka connector: in the package, if a wheel bundles them, or in a source checkout."""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock.errors import ConfigError

_BUNDLED = Path(__file__).parent / "jars"
_CHECKOUT = Path(__file__).parents[3]


def connector_jars() -> list[Path]:
    """Return the jars that Spark needs to read from Kafka, each checked against its pinned SHA-256."""
    if _BUNDLED.is_dir():
        return _checked(_BUNDLED, _BUNDLED / "jars.sha256", "Reinstall penstock.")
    return _checked(_CHECKOUT / ".parts" / "connector", _CHECKOUT / "tools" / "connector" / "jars.sha256", "Run `make setup`.")


def _checked(directory: Path, sums: Path, cure: str) -> list[Path]:
    try:
        pinned = [line.split() for line in sums.read_text().splitlines()]
        jars = {directory / name: digest for digest, name in pinned}
        changed = [jar.name for jar, digest in jars.items() if hashlib.sha256(jar.read_bytes()).hexdigest() != digest]
    except FileNotFoundError as missing:
        raise ConfigError(f"Spark's Kafka connector is missing: {missing.filename} does not exist. {cure}") from missing
    if changed:
        raise ConfigError(f"Spark's Kafka connector has the wrong checksum: {', '.join(changed)} in {directory}. {cure}")
    return list(jars)
