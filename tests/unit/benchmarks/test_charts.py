"""Charts and tables: well-formed, with every side and figure of a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.report.__main__ import FIGURES, PICTURES, main, place, with_part
from benchmarks.report.plots import plots
from benchmarks.report.svg import Bar, bars, lines, short
from benchmarks.report.tables import markdown

SVG = "{http://www.w3.org/2000/svg}"


def side(*per_s: float, **more: Any) -> dict[str, Any]:
    middle = sorted(per_s)[len(per_s) // 2]
    figures = {
        "per_s": middle,
        "cpu_s_per_million": {"jvm": 4.0},
        "cpu_s_per_million_total": 4.0,
        "utilisation": {"steady": {"all": 0.9}},
        "peak_pss_mb": 900.0,
        "peak_rss_mb": 1100.0,
        **more,
    }
    return {"rounds": [{**figures, "per_s": one} for one in per_s], "median": figures, "spread": {"per_s": 0.1}}


def latency(p50: float) -> dict[str, Any]:
    found = {"after_60_s": {"p50": p50, "p95": 2 * p50, "p99": 3 * p50, "max": 4 * p50}}
    return {"rounds": [found], "median": found, "spread": {}}


REPORT: dict[str, Any] = {
    "options": {"rounds": 3},
    "machine": {"cores": 2, "memory_mb": 24_000},
    "revision": "abc",
    "throughput": {
        "B": {"title": "count & sum", "penstock": side(90, 100, 110), "kafka-streams": side(50, 60, 70)},
        "E": {"title": "foreign keys", "penstock": side(10), "spark": {"left_out": "no such join"}},
    },
    "latency": {"no exchange": {"1000": {"title": "", "penstock": latency(200), "kafka-streams": latency(100)}}},
    "start": {"title": "start", "penstock": {"rounds": [], "median": {"cold_s": 9.5}, "spread": {"cold_s": 0}}},
    "restore": {
        "1000000": {"title": "", "penstock": {"rounds": [], "median": {"cold_start_s": 12}, "spread": {"cold_start_s": 0}}}
    },
    "growth": {
        "keys": {
            size: {"title": "", "penstock": side(1, cpu_us_per_record=cost)} for size, cost in (("1000", 9.0), ("1000000", 10.0))
        },
        "time": {"title": "long"},
    },
    "idle": {"title": "", "penstock": {"rounds": [], "median": {"cpu_percent": 2.5}, "spread": {}}},
    "goals": {
        "idle": {"goal": "below 3", "measured": 2.5, "reached": True},
        "other": {"goal": "", "measured": None, "reached": None},
    },
}


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_bar_is_as_high_as_its_value() -> None:
    svg = bars("t", "u", {"g": {"a": Bar(50, 50, 50), "b": Bar(100, 90, 100)}})
    heights = [
        float(rect.get("height", 0))
        for rect in ET.fromstring(svg).iter(f"{SVG}rect")
        if rect.get("x") and rect.get("width") != "10"
    ]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)


def test_a_series_that_a_group_lacks_leaves_a_gap() -> None:
    svg = bars("t", "u", {"g": {"a": Bar(1, 1, 1), "b": Bar(2, 2, 2)}, "h": {"b": Bar(3, 3, 3)}})
    assert {"g", "h", "a", "b"} <= set(texts(svg))


def test_names_are_escaped() -> None:
    assert "a < b & c" in texts(bars("a < b & c", "u", {"<g>": {"s": Bar(1, 1, 1)}}))


def test_lines_run_from_left_to_right() -> None:
    svg = lines("t", "keys", "µs", {"penstock": [(1_000_000, 3), (1_000, 1), (10_000, 2)]})
    [line] = ET.fromstring(svg).iter(f"{SVG}polyline")
    xs = [float(point.split(",")[0]) for point in (line.get("points") or "").split()]
    assert xs == sorted(xs)
    assert {"1k", "10k", "1M"} <= set(texts(svg))


def test_a_single_point_is_drawn() -> None:
    assert "<circle" in lines("t", "x", "u", {"a": [(1, 1)]})


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (950, "950"), (1_500, "1.5k"), (2_000_000, "2M")])
def test_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text


def test_a_report_has_a_plot_of_each_measurement() -> None:
    drawn = dict(plots(REPORT))
    assert set(drawn) == {"bench-throughput.svg", "bench-latency-no-exchange.svg", "bench-growth-keys.svg"}
    assert {"B", "E", "penstock", "kafka-streams"} <= set(texts(drawn["bench-throughput.svg"]))
    assert "spark" not in texts(drawn["bench-throughput.svg"])


def test_an_empty_report_has_no_plots_and_no_tables() -> None:
    assert dict(plots({})) == {}
    assert "|" not in markdown({})


def test_tables_have_medians_with_their_spread_and_reasons() -> None:
    text = markdown(REPORT)
    assert "| B: count & sum | 100 (10%) | 60 (10%) | – |" in text
    assert "- E, spark: no such join." in text
    unknown = "penstock (engine not recorded)"
    assert f"| no exchange | 1000 | {unknown} | after 60 s | 200 | 400 | 600 | 800 |" in text
    assert f"| {unknown} | 9.5 | – | – |" in text
    assert f"| 1,000,000 | {unknown} | 12.0 | – | – |" in text
    assert "| idle | below 3 | 2.5 | yes |" in text
    assert "other" not in text


def test_figures_replace_the_old_ones_only() -> None:
    begin, end = place(FIGURES)
    page = with_part(f"before\n{begin}\nold\n{end}\nafter\n", FIGURES, "new")
    assert page == f"before\n{begin}\n\nnew\n{end}\nafter\n"
    with pytest.raises(ValueError, match="no place for pictures"):
        with_part(page, PICTURES, "new")


def test_the_page_is_written_from_the_report(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(json.dumps(REPORT))
    page = tmp_path / "page.md"
    page.write_text("\n".join([*place(PICTURES), *place(FIGURES)]))
    assert main([str(tmp_path / "bench.json"), "--page", str(page), "--images", str(tmp_path)]) == 0
    assert "![bench-throughput](images/bench-throughput.svg)" in page.read_text()
    assert (tmp_path / "bench-throughput.svg").read_text().startswith("<svg")


def test_the_page_begins_with_pictures_and_has_a_place_for_tables_behind_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "performance.md").read_text(encoding="utf-8")
    for part in (PICTURES, FIGURES):
        assert with_part(page, part, "x")
    assert page.index("![") < page.index("## ") < page.index("\n|")
