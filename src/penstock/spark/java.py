"""The Java that Spark's scripts would run: where it is, which version it has, and one error if it cannot run Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.errors import ConfigError

OLDEST = 17
_MODULE = "jdk.incubator.vector"
"""Spark starts Java with it, and packages that bring only a part of Java leave it out."""
_TIMEOUT_S = 30
_OWN_SETUP = ("SPARK_HOME", "SPARK_CONF_DIR")
"""With one of them, Spark's scripts may read a `spark-env.sh` that sets another Java."""


def java_command() -> str | None:
    """Return the command of the Java at JAVA_HOME, or of the one on the path; None if there is neither."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def version_text(command: str) -> str:
    """Return what `java -version` prints."""
    return subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True).stderr  # noqa: S603 - the command that Spark would run


def version_in(text: str) -> int | None:
    """Return the version in such text: `1.8.0_402` is 8, `21.0.5` is 21. None if it has none."""
    found = re.search(r'(?:version |JAVA_VERSION=)"(?:1\.)?(\d+)', text)
    return None if found is None else int(found.group(1))


def require_java(who: str, otherwise: str) -> str:
    """Return the command of a Java that is new enough; raise if there is none. `otherwise` is how to do without."""
    cure = f"Install Java {OLDEST} or later, on the path or at JAVA_HOME; {otherwise}."
    command = java_command()
    if command is None:
        raise ConfigError(f"{who} needs Java, which is not on the path, and JAVA_HOME is not set. {cure}")
    try:
        version = version_in(record_of(command)) or version_in(version_text(command))  # to start Java takes longer
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{who} needs Java, but {command} cannot be run: {type(error).__name__}. {cure}") from None
    if version is not None and version < OLDEST:
        raise ConfigError(f"{who} needs Java {OLDEST} or later, but {command} is Java {version}. {cure}")
    return command


def require_java_of_spark() -> None:
    """Raise if Spark's JVM cannot start: its own message would be a stack trace."""
    if any(name in os.environ for name in _OWN_SETUP):
        return
    otherwise = "or set engine = local, which runs without Java"
    command = require_java("Spark", otherwise)
    modules = re.search(r'^MODULES="([^"]*)"', record_of(command), re.MULTILINE)
    if modules is not None and _MODULE not in modules.group(1).split():
        cure = f"Install a complete Java {OLDEST} or later, on the path or at JAVA_HOME; {otherwise}."
        raise ConfigError(f"Spark needs the module {_MODULE}, which {command} lacks: it is a part of Java only. {cure}")


def record_of(command: str) -> str:
    """Return the file in which a JDK says what it is, "" if there is none."""
    release = Path(command).resolve().parent.parent / "release"
    return release.read_text(encoding="utf-8") if release.is_file() else ""
