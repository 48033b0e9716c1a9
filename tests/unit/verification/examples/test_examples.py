"""The cases cover the examples, their folders are complete, and the comparison finds what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config import Config
from verification.examples.cases import CASES, EXAMPLES, QUICK, Case, Outputs, Written
from verification.examples.trial import differences, expected

STREAM, TABLE = "fraud-alerts", "fraud-cases"
CASE = replace(CASES[0], tables=frozenset({TABLE}), by_clock=frozenset({"payments-late"}))
KNOWN: Outputs = {
    STREAM: [Written(b"a", b"1", 10), Written(b"a", b"2", 20), Written(b"b", b"1", 15)],
    TABLE: [Written(b"a", b"1", 10), Written(b"a", b"2", 20), Written(b"b", b"1", 15), Written(b"b", None, 25)],
}


def test_every_folder_with_an_application_is_a_case() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("*/test_app.py")}
    assert {case.folder for case in CASES} == folders
    assert set(QUICK) < {case.name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_readme_names_all_topics(case: Case) -> None:
    text = (case.directory / "README.md").read_text(encoding="utf-8")
    source = (case.directory / f"{case.module}.py").read_text(encoding="utf-8")
    for topic in case.inputs() | case.outputs():
        assert f'"{topic}"' in source
        assert f"`{topic}`" in text, f"{case.folder}/README.md does not name {topic}"
    assert f"({case.folder}/README.md)" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_settings_are_valid(case: Case) -> None:
    config = Config.load(case.directory / "penstock.toml", environment={})
    assert config.kafka["bootstrap.servers"] == "localhost:9092"
    assert config.create_topics


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_sample_data_reaches_every_output(case: Case) -> None:
    known = expected(case)
    assert {topic for topic, records in known.items() if not records} == case.empty
    assert {record.topic for record in case.records()} <= case.inputs()
    assert differences(case, known, known) == []


def test_equal_outputs_do_not_differ() -> None:
    assert differences(CASE, KNOWN, KNOWN) == []


def test_of_a_table_only_the_last_value_of_each_key_counts() -> None:
    assert differences(CASE, KNOWN, {**KNOWN, TABLE: [Written(b"a", b"2", 99)]}) == []


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        (STREAM, []),
        (STREAM, KNOWN[STREAM][:-1]),
        (STREAM, [*KNOWN[STREAM], KNOWN[STREAM][-1]]),
        (STREAM, [KNOWN[STREAM][1], KNOWN[STREAM][0], KNOWN[STREAM][2]]),
        (STREAM, [*KNOWN[STREAM][:-1], Written(b"b", b"1", 16)]),
        (STREAM, [*KNOWN[STREAM][:-1], Written(b"b", b"3", 15)]),
        (TABLE, KNOWN[TABLE][:1]),
        (TABLE, KNOWN[TABLE][:-1]),
        (TABLE, [*KNOWN[TABLE], Written(b"c", b"1", 30)]),
    ],
)
def test_a_difference_is_found(topic: str, found: list[Written]) -> None:
    [difference] = differences(CASE, KNOWN, {**KNOWN, topic: found})[:1]
    assert difference.startswith(f"{topic}, key ")


def test_an_output_that_shows_nothing_is_a_difference() -> None:
    nothing: Outputs = {**KNOWN, STREAM: []}
    [difference] = differences(CASE, nothing, nothing)
    assert "the test driver wrote 0 records" in difference
    assert differences(replace(CASE, empty=frozenset({STREAM})), nothing, nothing) == []
    assert len(differences(replace(CASE, empty=frozenset({STREAM})), KNOWN, KNOWN)) == 1
