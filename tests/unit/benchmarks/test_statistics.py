"""Medians, spread and percentiles."""

from __future__ import annotations

import pytest

from benchmarks.report.statistics import medians, percentile, rounded, spread, spreads


def test_the_median_of_nested_figures_is_taken_figure_by_figure() -> None:
    rounds = [{"per_s": 3, "cpu": {"jvm": 1.0}}, {"per_s": 1, "cpu": {"jvm": 5.0}}, {"per_s": 2, "cpu": {"jvm": 3.0}}]
    assert medians(rounds) == {"per_s": 2, "cpu": {"jvm": 3.0}}


def test_a_figure_of_some_rounds_only_has_the_median_of_those() -> None:
    assert medians([{"after_60_s": 1}, {"after_60_s": 3, "after_300_s": 9}]) == {"after_60_s": 2, "after_300_s": 9}


def test_what_is_not_a_number_has_no_median() -> None:
    assert medians([{"settings": "100ms", "is_steady": True, "per_s": 1}]) == {"per_s": 1}


def test_spread_is_a_share_of_the_median() -> None:
    assert spread([90, 100, 120]) == pytest.approx(0.3)
    assert spread([5]) == 0
    assert spread([0, 0]) == 0
    assert spreads([{"a": {"b": 90}}, {"a": {"b": 110}}]) == {"a": {"b": pytest.approx(0.2)}}


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 101))
    assert [percentile(values, percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7.0], 50) == 7.0
    assert percentile([1, 2, 3], 50) == 2


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_figures_are_rounded_to_four_digits() -> None:
    assert rounded({"a": 123456.789, "b": [0.000123456], "c": 123456, "d": "x"}) == {
        "a": 123500.0,
        "b": [0.0001235],
        "c": 123456,
        "d": "x",
    }
