"""The report: it is on disk after each measurement, and a second run may add to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import PARTS, main
from benchmarks.bench import Bench, Options
from benchmarks.measurements.growth import sizes
from benchmarks.measurements.latency import summary
from benchmarks.report.report import Report
from benchmarks.report.tables import markdown
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.workload import WrongResultError
from verification.harness.processes import HarnessError

PLACE = ("throughput", "B", "penstock")


def on_disk(path: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(path.read_text())
    return content


def test_each_round_is_written_with_the_median_so_far(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "bench.json"
    report = Report(path, {"rounds": 2})
    report.begin(PLACE[:2], title="count")
    for per_s in (100.0, 120.0):
        report.add(PLACE, {"per_s": per_s}, settings="fast")
        assert on_disk(path)["throughput"] == report.content["throughput"]
    found = report.get(*PLACE)
    assert found["median"] == {"per_s": 110.0}
    assert found["spread"] == {"per_s": 0.1818}
    assert found["settings"] == "fast"
    assert report.get("throughput", "B", "title") == "count"


def test_a_figure_of_penstock_names_engine_slots_and_tasks(tmp_path: Path) -> None:
    report = Report(tmp_path / "bench.json", {})
    for slots in (2, 2, 1):
        report.ran_on["penstock"] = {"engine": "spark", "slots": slots, "spark_tasks": slots, "hosts": 1}
        report.add(("idle", "penstock"), {"cpu_percent": 2.0})
    report.add(("idle", "kafka-streams"), {"cpu_percent": 3.0})
    report.add(("start", "penstock-local"), {"cold_s": 3.0})
    page = markdown(report.content)
    assert "penstock (engine spark, slots 2, Spark tasks 2; engine spark, slots 1, Spark tasks 1) | 2.00" in page
    assert "| kafka-streams | 3.00" in page
    assert "penstock-local (engine not recorded)" in page


def test_goals_follow_the_figures(tmp_path: Path) -> None:
    report = Report(tmp_path / "bench.json", {})
    report.note(("timers",), {"timers_per_s": 150_000})
    assert report.content["goals"]["timers per second and core"]["reached"] is True


def test_a_part_that_runs_again_replaces_its_old_figures_only(tmp_path: Path) -> None:
    first = Report(tmp_path / "bench.json", {})
    first.add(PLACE, {"per_s": 1})
    first.add(("idle", "penstock"), {"cpu_percent": 2})
    second = Report(tmp_path / "bench.json", {}, resumes=True)
    second.begin(("throughput", "B"), title="again")
    second.add(PLACE, {"per_s": 3})
    assert second.get(*PLACE, "rounds") == [{"per_s": 3}]
    assert second.get("idle", "penstock", "median", "cpu_percent") == 2


def test_without_resuming_the_old_report_is_forgotten(tmp_path: Path) -> None:
    Report(tmp_path / "bench.json", {}).add(PLACE, {"per_s": 1})
    assert Report(tmp_path / "bench.json", {}).get("throughput") is None


def test_what_is_left_out_or_failed_has_its_reason(tmp_path: Path) -> None:
    report = Report(tmp_path / "bench.json", {})
    report.leave_out(("throughput", "E", "spark"), "no such join")
    report.fail(PLACE, HarnessError("the broker is gone"))
    assert report.get("throughput", "E", "spark", "left_out") == "no such join"
    assert report.get(*PLACE, "failed") == ["the broker is gone"]
    assert report.failures == 1


def test_an_invalid_run_is_noted_and_does_not_end_the_bench(tmp_path: Path) -> None:
    report = Report(tmp_path / "bench.json", {})
    bench = Bench(tmp_path, Options(), report)
    with bench.tolerance(PLACE):
        raise WrongResultError("k1 was counted twice")
    assert report.failures == 1
    with pytest.raises(KeyError), bench.tolerance(PLACE):
        raise KeyError("a mistake of the bench itself")


def test_names_are_used_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Options(), Report(tmp_path / "bench.json", {}))
    assert bench.fresh("in") != bench.fresh("in")


def test_sizes_are_scaled_but_never_to_nothing() -> None:
    options = Options(scale=0.01)
    assert (options.scaled(2_000_000), options.scaled(5), options.scaled(5_000, 1_000)) == (20_000, 1, 1_000)


def test_only_known_parts_and_sides_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--only", "B,X"], ["--sides", "flink"]):
        with pytest.raises(SystemExit):
            main(arguments)
    assert "unknown: X" in capsys.readouterr().err


def test_all_workloads_are_parts() -> None:
    assert set(WORKLOADS) <= set(PARTS)
    assert {"I-1000", "J", "K", "M", "idle", "timers", "calls", "queries"} <= set(PARTS)


def test_growth_covers_cores_partitions_keys_and_depth() -> None:
    found: dict[str, list[int]] = {}
    for size in sizes():
        found.setdefault(size.of, []).append(size.value)
        assert size.workload.records > size.workload.keys
    assert found == {
        "cores": [1, 2],
        "partitions": [1, 4, 16, 64],
        "keys": [1_000, 10_000, 100_000, 1_000_000, 5_000_000],
        "depth": [1, 2, 3, 4, 5, 6],
    }


def test_latencies_are_summed_up_by_percentiles() -> None:
    found = summary([float(number) for number in range(1, 201)])
    assert found == {"p50": 100.0, "p95": 190.0, "p99": 198.0, "max": 200.0, "probes": 200}
    with pytest.raises(HarnessError, match="no probe"):
        summary([])
