"""`penstock doctor`: checks what an application needs of its machine, brokers and registry; says how to fix each problem."""

from __future__ import annotations

import platform
import re
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.app import App
from penstock.cli.broker_checks import examine_brokers
from penstock.cli.findings import Finding, Level, fail, ok, warn
from penstock.cli.registry_checks import examine_registry
from penstock.cli.screen import output_console, print_json, shown, table, verdict
from penstock.config import Config
from penstock.errors import ConfigError
from penstock.spark.installed import NEEDED, is_supported, pyspark_version
from penstock.spark.java import OLDEST, java_command, version_in, version_text

_OPEN_FILES = 4_096
_FREE_BYTES = 1 << 30
_FREE_MEMORY = 2 << 30


def examine(app: App | None, config_file: Path | None, overrides: Mapping[str, Any], of_cluster: bool = False) -> list[Finding]:
    """Run all checks; those of topics need an application, those of a cluster start executors."""
    try:
        config = Config.load(config_file, **overrides)
    except ConfigError as error:
        return [*_machine(needs_spark=True), fail("settings", str(error), "correct the setting")]
    findings = [*_machine(needs_spark=config.engine == "spark" or of_cluster), ok("settings", "valid")]
    findings += [*_state_directory(config.state_dir), *_admin_port(config)]
    findings += [*examine_brokers(app, config), *examine_registry(app, config)]
    return [*findings, *_cluster(config)] if of_cluster else findings


def print_findings(findings: Iterable[Finding], as_json: bool) -> int:
    """Print the findings and return the exit code: 1 if one of them would prevent an application from running."""
    found = list(findings)
    if as_json:
        print_json([{"what": f.what, "level": f.level.value, "found": f.found, "cure": f.cure} for f in found])
    else:
        rows = [(verdict(f.level.value), f.what, shown(f.found), shown(f.cure, style="bold")) for f in found]
        output_console().print(table(("", "what", "found", "cure"), rows))
    return 1 if any(finding.level is Level.FAIL for finding in found) else 0


# ---- the machine ------------------------------------------------------------------------------------------------------


def _machine(*, needs_spark: bool) -> Iterator[Finding]:
    yield _python(pyspark_version(), needs_spark)
    yield _java(needs_spark)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        yield warn("open files", f"this shell allows {soft}", f"ulimit -n {_OPEN_FILES}: RocksDB stores and sockets need many")
    else:
        yield ok("open files", "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} allowed")
    yield from _memory(Path("/proc/meminfo"))


def _python(pyspark: str | None, needs_spark: bool) -> Finding:
    """Check that Spark has a version that is supported, if it is needed."""
    text = f"{platform.python_version()}, {f'pyspark {pyspark}' if pyspark else 'without pyspark'}"
    if not needs_spark or (pyspark is not None and is_supported(pyspark)):
        return ok("python", text)
    return fail("python", text, f"install {NEEDED}" + ("" if pyspark else ", or set engine = local"))


def _java(needs_spark: bool) -> Finding:
    """Check the Java that Spark would start, if it is needed."""
    command = java_command()
    cure = f"install Java {OLDEST} or later, on the path or at JAVA_HOME; engine = local needs none"
    if not needs_spark:
        return ok("java", f"{command or 'none'}; engine = local needs none")
    if command is None:
        return fail("java", "not on the path, and JAVA_HOME is not set", cure)
    try:
        return java_finding(version_text(command), command, cure)
    except (OSError, subprocess.SubprocessError) as error:
        return fail("java", f"{command} cannot be run: {type(error).__name__}", cure)


def java_finding(output: str, command: str, cure: str) -> Finding:
    """Check the output of `java -version`."""
    version = version_in(output)
    if version is None:
        return warn("java", f"{command} does not print its version", cure)
    return ok("java", f"{version} ({command})") if version >= OLDEST else fail("java", f"{version} ({command})", cure)


def _memory(meminfo: Path) -> Iterator[Finding]:
    """Check the memory that Linux could provide without swapping; other systems have no such file."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE) if meminfo.exists() else None
    if found is not None:
        free = int(found.group(1)) << 10
        text = f"{free / 2**30:.1f} GiB available"
        cure = "each lane needs some hundred MiB, and Spark 1 GiB: use fewer lanes, or smaller epochs (max_epoch_records)"
        yield ok("memory", text) if free >= _FREE_MEMORY else warn("memory", text, cure)


def _cluster(config: Config) -> Iterable[Finding]:
    """Check the executors; without PySpark there are none, which is a finding already."""
    if pyspark_version() is None:
        return ()
    from penstock.cli.cluster_checks import examine_cluster  # noqa: PLC0415 - loads pyspark, which may be missing

    return examine_cluster(config)


# ---- directory and port -----------------------------------------------------------------------------------------------


def _state_directory(directory: Path) -> Iterator[Finding]:
    """Check that stores can be kept there: writable, not by other users, with enough space."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        yield fail(
            "state_dir", f"{place} cannot be written: {error.strerror}", "set state_dir to a directory of the application's user"
        )
        return
    if directory.exists() and directory.stat().st_mode & 0o022:
        yield warn("state_dir", f"{directory} can be written by other users", f"chmod go-w {directory}")
    else:
        yield ok("state_dir", f"{directory} can be written")
    free = shutil.disk_usage(place).free
    text = f"{free / 2**30:.1f} GiB free at {place}"
    yield ok("disk", text) if free >= _FREE_BYTES else warn("disk", text, "free some space, or set state_dir to another disk")


def _admin_port(config: Config) -> Iterator[Finding]:
    if config.admin_endpoint is None:
        yield ok("admin server", "off")
        return
    host, port = config.admin_endpoint
    cure = "is the application already running? If not, set admin_address to another port, or to port 0 for any free one"
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        yield warn("admin server", f"cannot listen at {config.admin_address}: {error.strerror}", cure)
    else:
        yield ok("admin server", f"{config.admin_address} is free")
