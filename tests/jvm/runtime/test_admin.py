"""The admin server of an application on a real broker: it responds from start to shutdown."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.jvm.runtime.test_life_cycle import START_S, finish, started, write_app
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm


def ask(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def address_in(log: Path) -> str | None:
    found = re.search(r"admin server listening at (http://127\.0\.0\.1:\d+)", log.read_text() if log.exists() else "")
    return found and found[1]


def test_an_application_answers_for_itself_from_start_to_end(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    for topic in ("answers-in", "answers-out"):
        topics.create(servers, topic, partitions=2)
    path = write_app(tmp_path, "answers")
    with started(path, broker) as process:
        wait_until("an address", lambda: address_in(path.with_suffix(".log")) is not None, START_S, every_s=0.05)
        url = address_in(path.with_suffix(".log")) or ""
        status, report = ask(f"{url}/health/ready")
        assert (status, report["state"], report["problems"][0]["what"]) == (503, "rebalancing", "starting")
        assert ask(f"{url}/health/live")[0] == 200
        wait_until("readiness", lambda: ask(f"{url}/health/ready")[0] == 200, START_S)
        records = [topics.Sent(key=b"k%d" % (i % 8), value=b"v", partition=i % 2) for i in range(400)]
        topics.produce(servers, "answers-in", records)

        def offsets() -> list[int]:
            return [place["offset"] for place in ask(f"{url}/watermarks")[1]["partitions"]]

        wait_until("all is read", lambda: offsets() == [200, 200], START_S)
        status, state = ask(f"{url}/state")
        assert (status, state["state"], [store["name"] for store in state["stores"]]) == (200, "running", ["last"])
        [last, *_] = ask(f"{url}/debug/barriers")[1]["recent"]
        assert last["epoch"] == state["epoch"]
        assert last["phases"]
        assert ask(f"{url}/config")[1]["kafka"] == {"bootstrap.servers": servers}
        process.send_signal(signal.SIGTERM)
        code, log = finish(process, path)
    assert code == 0, log
    with pytest.raises(urllib.error.URLError):
        ask(f"{url}/health/live")
