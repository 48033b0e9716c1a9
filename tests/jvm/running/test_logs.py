"""What a real application writes to standard error: lines of one form, from the driver, Spark's workers and its JVM alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from harness import topics
from harness.broker import Broker

pytestmark = pytest.mark.jvm

APP = """
import logging
import sys
from penstock import App, StreamsBuilder, log_and_continue

def shout(value):
    if value == "bad":
        raise ValueError("too quiet, sasl.password=hunter2-c4n4ry")
    if value == "odd":
        print("printed by a function")
        logging.getLogger("own").info("of the user's own \\x1b[2K%s", "in\\u202ejection", extra={"customer": 7})
    return value.upper()

builder = StreamsBuilder()
stream = builder.stream("logs-in", value=str).group_by_key().reduce(lambda old, new: new, store="last").to_stream()
stream.map_values(shout).to("logs-out", value=str)
app = App("logs", builder.build(), processing_errors=log_and_continue())
if __name__ == "__main__":
    app.run(until="latest")
"""


@pytest.fixture(scope="module")
def lines(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    for name in ("logs-in", "logs-out"):
        topics.create(broker.bootstrap_servers, name)
    records = [topics.Sent(key=value, value=value) for value in (b"good", b"bad", b"odd")]
    topics.produce(broker.bootstrap_servers, "logs-in", records)
    path = tmp_path_factory.mktemp("logs") / "app.py"
    path.write_text(APP, encoding="utf-8")
    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PENSTOCK_LANES": "2",
    }
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, cwd=path.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def only(lines: list[str], logger: str) -> dict[str, Any]:
    """The one line of a logger."""
    found: list[dict[str, Any]] = [line for line in map(json.loads, lines) if line["logger"] == logger]
    assert len(found) == 1, "\n".join(lines)
    return found[0]


def test_every_line_is_json_with_the_same_first_words(lines: list[str]) -> None:
    for line in lines:
        found = json.loads(line)
        assert list(found)[:5] == ["timestamp", "level", "logger", "event", "application"], line
        assert found["application"] == "logs"


def test_workers_lines_come_once_with_lane_and_epoch(lines: list[str]) -> None:
    own, failed = only(lines, "own"), only(lines, "penstock.lanes.failures")
    assert own["event"] == "of the user's own \\x1b[2Kin\\u202ejection"
    assert own["customer"] == 7
    assert "too quiet" in failed["event"]
    for found in (own, failed):
        assert (found["lane"] in (0, 1), found["epoch"]) == (True, 0)
        assert found["incarnation"]
        assert found["topology"]


def test_the_thread_of_epochs_says_which_and_in_what_phase(lines: list[str]) -> None:
    dropped = only(lines, "penstock.running.epochs")
    assert "dropped 1 records" in dropped["event"]
    assert (dropped["epoch"], dropped["phase"]) == (0, "check")


def test_the_jvms_lines_and_what_functions_print_are_joined(lines: list[str]) -> None:
    found = [json.loads(line) for line in lines]
    assert any(line["logger"].startswith("org.apache.") for line in found)
    assert any((line["logger"], line["event"]) == ("penstock.output", "printed by a function") for line in found)


def test_no_secret_is_in_it(lines: list[str]) -> None:
    assert "c4n4ry" not in "".join(lines)
    assert any("sasl.password=[hidden]" in line for line in lines)
