"""Mistakes with settings, the command line and the machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.admin.listener import listen
from penstock.cli.applications import load_app, overrides
from penstock.cli.doctor import java_finding
from penstock.config import Config
from penstock.errors import BrokerError, ConfigError
from penstock.kafka.clients import reach_brokers
from tests.unit.mistakes.teaching import teaches

BROKERS = "localhost:9092"


def test_a_misspelt_setting() -> None:
    with teaches(ConfigError, "arguments: unknown setting 'epoch_intervall'", "Did you mean 'epoch_interval'?", line=False):
        Config.load(environment={}, bootstrap_servers=BROKERS, epoch_intervall="1s")


def test_a_misspelt_variable() -> None:
    with teaches(ConfigError, "unknown variable PENSTOCK_LANE", "Did you mean PENSTOCK_LANES?", line=False):
        Config.load(environment={"PENSTOCK_LANE": "2"}, bootstrap_servers=BROKERS)


def test_no_brokers() -> None:
    with teaches(ConfigError, '"bootstrap.servers" is missing', "PENSTOCK_BOOTSTRAP_SERVERS", line=False):
        Config.load(environment={})


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("lanes: 2\n", encoding="utf-8")
    with teaches(ConfigError, f"{str(file)!r} is not valid TOML", "line 1", line=False):
        Config.load(path=file, environment={})


def test_more_lanes_than_shards() -> None:
    with teaches(ConfigError, "16 lanes cannot share 8 shards", "Set lanes to 8 or less", line=False):
        Config.load(environment={}, bootstrap_servers=BROKERS, lanes=16, shards=8)


def test_a_setting_of_kafka_that_is_penstocks_own() -> None:
    with teaches(ConfigError, "'group.id' cannot be set", "the application's id is the group", line=False):
        Config.load(environment={}, kafka={"bootstrap.servers": BROKERS, "group.id": "mine"})


def test_a_port_that_is_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = Config.load(environment={}, bootstrap_servers=BROKERS, admin_address=address)
        cause = f"admin_address: cannot listen at '{address}'"
        with teaches(ConfigError, cause, "PENSTOCK_ADMIN_ADDRESS=127.0.0.1:0", line=False):
            listen(config)


@pytest.mark.slow  # it waits for a broker as long as it may
def test_brokers_that_are_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    config = Config.load(environment={}, bootstrap_servers=address, broker_timeout="1s")
    with teaches(BrokerError, f"Cannot connect to a broker at {address}", "Check bootstrap_servers", line=False):
        reach_brokers(config)


def test_a_password_on_the_command_line() -> None:
    with teaches(ConfigError, "all users of this machine can see the command line", "Write env:NAME or file:PATH", line=False):
        overrides(["kafka.sasl.password=geheim"])


@pytest.mark.parametrize(
    ("source", "cause", "cure"),
    [
        ("", "has no 'app'", "Add app = App(…) at its top level"),
        ("app = 5", "'app' in", "is of type int, not App"),
    ],
)
def test_a_file_without_an_application(tmp_path: Path, source: str, cause: str, cure: str) -> None:
    file = tmp_path / f"shop_{len(source)}.py"
    file.write_text(source, encoding="utf-8")
    with teaches(ConfigError, cause, cure, line=False):
        load_app(str(file))


def test_no_java() -> None:
    finding = java_finding('openjdk version "11.0.2" 2019-01-15', "java", "install Java 17 or later, on the path or at JAVA_HOME")
    assert (finding.level.value, finding.found) == ("fail", "11 (java)")
    assert finding.cure == "install Java 17 or later, on the path or at JAVA_HOME"


def test_settings_of_an_application_are_read_before_it_starts(tmp_path: Path) -> None:
    app = tmp_path / "shop.py"
    app.write_text("from penstock import App, Topology\nApp('shop', Topology()).run(lane=2)\n", encoding="utf-8")
    done = subprocess.run([sys.executable, str(app)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == ConfigError.exit_code
    assert "exit code 2" in done.stdout + done.stderr
    assert "Did you mean 'lanes'?" in done.stdout + done.stderr
