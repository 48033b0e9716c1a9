"""Goals: a figure from the report, and whether it is within its bound."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.report.goals import GOALS, goals


def throughput(**per_s: float) -> dict[str, Any]:
    return {name.replace("_", "-"): {"median": {"per_s": figure}} for name, figure in per_s.items()}


def test_a_goal_that_was_not_measured_has_no_verdict() -> None:
    found = goals({})
    assert len(found) == len(GOALS)
    assert {(goal["measured"], goal["reached"]) for goal in found.values()} == {(None, None)}


def test_throughput_is_compared_with_the_median_of_the_rival() -> None:
    found = goals({"throughput": {"B": throughput(penstock=150, kafka_streams=100, penstock_columns=200)}})
    assert found["throughput B, lambdas, against Kafka Streams"] == {"goal": "at least 1.5", "measured": 1.5, "reached": True}
    assert found["throughput B, columns, against Kafka Streams"] == {"goal": "at least 2.5", "measured": 2.0, "reached": False}
    assert found["throughput C, lambdas, against Kafka Streams"]["measured"] is None


def test_spark_is_compared_with_the_better_of_lambdas_and_columns() -> None:
    name = "throughput A, the better of lambdas and columns, against Spark"
    assert goals({"throughput": {"A": throughput(penstock=80, penstock_columns=95, spark=100)}})[name]["measured"] == 0.95
    assert goals({"throughput": {"A": throughput(penstock=80, spark=100)}})[name]["reached"] is False


def test_less_is_better_for_latency_cpu_and_memory() -> None:
    def side(p95: float, cpu: float) -> dict[str, Any]:
        return {"median": {"after_60_s": {"p95": p95, "cpu_percent": cpu}}}

    found = goals({"latency": {"no exchange": {"1000": {"penstock": side(130, 30), "kafka-streams": side(100, 10)}}}})
    assert found["p95 at 1,000/s, no exchange, against Kafka Streams"] == {
        "goal": "at most 1.3",
        "measured": 1.3,
        "reached": True,
    }
    assert found["CPU at 1,000 records/s, against Kafka Streams"]["reached"] is False


@pytest.mark.parametrize(("percent", "reached"), [(2.9, True), (3.0, False), (3.1, False)])
def test_below_a_bound_excludes_the_bound(percent: float, reached: bool) -> None:
    found = goals({"idle": {"penstock": {"median": {"cpu_percent": percent}}}})
    assert found["idle CPU, % of a core"]["reached"] is reached


def test_growth_is_the_distance_of_the_cheapest_and_the_most_expensive_record() -> None:
    def size(cost: float) -> dict[str, Any]:
        return {"title": "", "penstock": {"median": {"cpu_us_per_record": cost}}}

    found = goals({"growth": {"keys": {"1000": size(10), "100000": size(9), "1000000": size(11.7)}, "time": {"title": "long"}}})
    assert found["growth of the cost per record in keys"]["measured"] == 0.3
    assert found["growth of the cost per record in keys"]["reached"] is False
    assert found["growth of the cost per record in time"]["measured"] is None


def test_all_goals_have_names_of_their_own() -> None:
    assert len({goal.name for goal in GOALS}) == len(GOALS)
