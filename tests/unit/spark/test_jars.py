"""Where the connector's jars are looked for, and the errors if they are missing or changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark import jars

pytestmark = pytest.mark.security(32)

CONTENT = b"a jar"
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a wheel would have put the jars; not there yet."""
    monkeypatch.setattr(jars, "_BUNDLED", tmp_path / "package" / "jars")
    monkeypatch.setattr(jars, "_CHECKOUT", tmp_path / "checkout")
    return tmp_path / "package" / "jars"


def lay(directory: Path, sums: Path, content: bytes = CONTENT) -> Path:
    directory.mkdir(parents=True)
    sums.parent.mkdir(parents=True, exist_ok=True)
    sums.write_text(f"{SUM}  connector-1.jar\n")
    (directory / "connector-1.jar").write_bytes(content)
    return directory / "connector-1.jar"


def lay_checkout(root: Path, content: bytes = CONTENT) -> Path:
    return lay(root / ".parts" / "connector", root / "tools" / "connector" / "jars.sha256", content)


def test_an_installed_package_has_them_inside(bundled: Path, tmp_path: Path) -> None:
    lay_checkout(tmp_path / "checkout")
    jar = lay(bundled, bundled / "jars.sha256")
    assert jars.connector_jars() == [jar]


def test_a_source_checkout_has_them_among_its_parts(bundled: Path, tmp_path: Path) -> None:
    assert not bundled.exists()
    jar = lay_checkout(tmp_path / "checkout")
    assert jars.connector_jars() == [jar]


def test_missing_jars_name_the_cure(bundled: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make setup"):
        jars.connector_jars()
    lay_checkout(tmp_path / "checkout").unlink()
    with pytest.raises(ConfigError, match=r"connector-1\.jar does not exist\. Run `make setup`"):
        jars.connector_jars()
    lay(bundled, bundled / "jars.sha256").unlink()
    with pytest.raises(ConfigError, match="Reinstall penstock"):
        jars.connector_jars()


def test_a_changed_jar_is_refused(bundled: Path) -> None:
    lay(bundled, bundled / "jars.sha256", b"another jar")
    with pytest.raises(ConfigError, match=r"wrong checksum: connector-1\.jar .* Reinstall penstock"):
        jars.connector_jars()
