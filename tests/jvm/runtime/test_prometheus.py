"""Prometheus reads the metrics of an application on Spark; what it and its tools say about metrics, alerts and the dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.jvm.runtime.test_life_cycle import ON_SPARK, START_S, started
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import free_port, wait_until
from verification.harness.prometheus import Prometheus, promtool

pytestmark = pytest.mark.jvm

MONITORING = Path(__file__).parents[3] / "docs" / "monitoring"
ALERTS = MONITORING / "alerts.yml"
OURS = re.compile(r"\b(?:penstock|jvm|process)_[a-z_]+\b")

COUNTS = """
from penstock import App, StreamsBuilder, bounded_disorder, dead_letter, log_and_continue

def strict(value):
    if value == "bad":
        raise ValueError(value)
    return value

builder = StreamsBuilder()
lines = builder.stream("metered-in", value=str, watermark=bounded_disorder("1s"), late=log_and_continue())
lines.map_values(strict).group_by_key().count(store="counts").to_stream().to("metered-out", value=int)
app = App("metered", builder.build(), processing_errors=dead_letter("metered-dead"))

if __name__ == "__main__":
    app.run()
"""


def exposed(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def value(port: int, name: str) -> float:
    """The sum of a metric over all labels; 0 while it does not exist."""
    lines = [line for line in exposed(port).splitlines() if re.match(rf"{name}[ {{]", line)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture(scope="module")
def metered(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The metrics port of an application that has counted, dropped late records and failed."""
    servers, port = broker.bootstrap_servers, free_port()
    for topic in ("metered-in", "metered-out", "metered-dead"):
        topics.create(servers, topic)
    path = tmp_path_factory.mktemp("metered") / "metered.py"
    path.write_text(COUNTS, encoding="utf-8")
    with started(path, broker, ON_SPARK, PENSTOCK_ADMIN_ADDRESS=f"127.0.0.1:{port}") as process:

        def has_counted(records: int) -> bool:
            assert process.poll() is None, path.with_suffix(".log").read_text()
            return value(port, "penstock_records_total") >= records

        wait_until("the application", lambda: answers(port), START_S)
        first = [topics.Sent(key=b"k%d" % (i % 7), value=b"v", timestamp=60_000 + i) for i in range(50)]
        topics.produce(servers, "metered-in", first)
        wait_until("the first epoch", lambda: has_counted(50), START_S)
        odd = [topics.Sent(key=b"k", value=b"late", timestamp=1), topics.Sent(key=b"k", value=b"bad", timestamp=70_000)]
        topics.produce(servers, "metered-in", [*odd, *(topics.Sent(key=b"k", value=b"v", timestamp=70_000) for _ in range(50))])
        wait_until("all epochs", lambda: has_counted(102), START_S)
        yield port


def answers(port: int) -> bool:
    try:
        return "penstock_application_info" in exposed(port)
    except OSError:
        return False


@pytest.fixture(scope="module")
def prometheus(metered: int) -> Iterator[Prometheus]:
    with Prometheus([metered], [ALERTS]) as running:
        wait_until("two scrapes", lambda: bool(running.query("rate(penstock_records_total[5m])")), 30)
        yield running


def expressions() -> dict[str, str]:
    """The dashboard's queries by their position in it."""
    board = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
    targets = [(panel["title"], target) for panel in board["panels"] for target in panel.get("targets", [])]
    found = {f"{title} {target['refId']}": target["expr"] for title, target in targets}
    found |= {note["name"]: note["expr"] for note in board["annotations"]["list"]}
    return {where: text.replace("$__rate_interval", "1m").replace("$instance", ".+") for where, text in found.items()}


def test_promtool_accepts_the_metrics(metered: int) -> None:
    assert promtool("check", "metrics", given=exposed(metered).encode()) == ""


def test_the_metrics_match_the_work_of_the_application(metered: int) -> None:
    assert value(metered, "penstock_records_total") == 102
    assert value(metered, "penstock_dead_letters_total") == 1
    assert value(metered, "penstock_dropped_records_total") == 2
    assert value(metered, "penstock_source_lag") == 0
    assert value(metered, "penstock_commits_total") == value(metered, "penstock_epoch_seconds_count")
    phases = {*re.findall(r'penstock_epoch_phase_seconds_count\{phase="(\w+)"\}', exposed(metered))}
    assert phases == {"before", "job", "wait", "check", "produce", "offsets", "commit", "after"}


def test_the_memory_of_all_processes_is_reported(metered: int) -> None:
    megabyte = 1 << 20
    wait_until("the JVM's answer", lambda: value(metered, "jvm_memory_used_bytes") > 50 * megabyte, 30)  # a scrape may do without
    assert value(metered, "penstock_workers_resident_memory_bytes") > 20 * megabyte
    assert value(metered, "process_resident_memory_bytes") > 20 * megabyte


def test_the_target_is_up(prometheus: Prometheus, metered: int) -> None:
    [target] = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    [info] = prometheus.query("up * on (instance) group_left (application) penstock_application_info")
    assert (info["metric"]["application"], info["value"][1]) == ("metered", "1")


def test_the_dashboard_queries_existing_metrics(prometheus: Prometheus) -> None:
    known = set(prometheus.ask("label/__name__/values"))
    for where, expression in expressions().items():
        assert set(OURS.findall(expression)) <= known, where
    silent = {where for where, expression in expressions().items() if not prometheus.query(expression)}
    assert silent == {"Starts"}, "nobody has started the application again"


def test_alerts_use_existing_metrics_and_are_silent(prometheus: Prometheus) -> None:
    known = set(prometheus.ask("label/__name__/values"))
    rules: list[Any] = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == 8
    for rule in rules:
        assert set(OURS.findall(rule["query"])) <= known, rule["name"]
        assert (rule["health"], {*rule["annotations"]}) == ("ok", {"summary", "runbook"}), rule["name"]
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    assert firing <= {"PenstockDeadLetters"}, "there was one"


def test_promtool_accepts_the_rules() -> None:
    assert "8 rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", str(ALERTS))


def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", str(Path(__file__).with_name("alerts.test.yml")))
