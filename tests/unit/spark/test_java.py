"""The Java that Spark would run: where it is looked for, and the one message if it is missing or too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark.java import java_command, require_java, require_java_of_spark, version_in


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty JAVA_HOME; nothing else is on the path."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path


def install(home: Path, script: str) -> None:
    command = home / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "21.0.5" 2024-10-15', 21),
        ('java version "1.8.0_402"', 8),
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n', 17),
        ("Picked up JAVA_TOOL_OPTIONS", None),
    ],
)
def test_versions(text: str, version: int | None) -> None:
    assert version_in(text) == version


def test_java_home_wins_over_the_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert java_command() == str(home / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME")
    assert java_command() is None


def test_a_missing_java_is_one_message_with_the_cure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"Spark needs Java, but .*/bin/java cannot be run: FileNotFoundError. Install Java 17"):
        require_java_of_spark()
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(ConfigError, match=r"not on the path, and JAVA_HOME is not set. .*set engine = local"):
        require_java_of_spark()


def test_an_old_java_is_one_message_with_the_cure(home: Path) -> None:
    install(home, """echo 'openjdk version "11.0.22"' >&2""")
    with pytest.raises(ConfigError, match=r"needs Java 17 or later, but .*/bin/java is Java 11. Install Java 17 or later"):
        require_java_of_spark()


def test_a_java_that_records_its_version_is_not_started(home: Path) -> None:
    install(home, "exit 1")
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert require_java("The broker", "or do without") == str(home / "bin" / "java")
    (home / "release").write_text('JAVA_VERSION="11.0.22"\n')
    with pytest.raises(ConfigError, match=r"The broker needs Java 17 or later, but .* is Java 11. .*; or do without\.$"):
        require_java("The broker", "or do without")


def test_a_java_without_a_module_that_spark_needs_is_one_message(home: Path) -> None:
    install(home, "exit 1")
    (home / "release").write_text('JAVA_VERSION="21.0.1"\nMODULES="java.base java.sql"\n')
    with pytest.raises(
        ConfigError, match=r"needs the module jdk\.incubator\.vector, which .*/bin/java lacks.*Install a complete Java"
    ):
        require_java_of_spark()
    (home / "release").write_text('JAVA_VERSION="21.0.1"\nMODULES="java.base jdk.incubator.vector"\n')
    require_java_of_spark()


def test_a_java_that_does_not_say_its_version_is_left_to_itself(home: Path) -> None:
    install(home, "exit 0")
    require_java_of_spark()


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR"])
def test_a_setup_of_spark_may_set_another_java(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, str(home))
    require_java_of_spark()
