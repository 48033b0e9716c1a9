"""`penstock try`: a topology over files, its outputs and stores, and errors that name the line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.calling import call

APP = """
from penstock import (
    App, Processor, Store, StreamsBuilder, dead_letter, tumbling
)

builder = StreamsBuilder()
lines = builder.stream("lines", value=str)
words = lines.flat_map_values(str.split).group_by(lambda _, word: word)
words.count(store="words").to_stream().to("counts", value=int)
words.windowed_by(tumbling("1m")).count(store="per-minute")
rates = builder.global_table("rates", value=float, store="rates")
prices = builder.stream("prices", value=float)
prices.join(rates, lambda price, rate: price * rate, on=lambda key, _: key).to("converted", value=float)


class Remind(Processor):
    def process(self, record):
        self.context.timers.processing_time(after="10m")

    def on_timer(self, timer):
        self.context.forward(timer.record("late"))


builder.stream("tasks", value=str).process(Remind).to("reminders", value=str)
builder.stream("numbers", value=str).map_values(int).to("parsed", value=int)
builder.table("customers", value=str, store=Store("customers", history="1h")).to_stream().to("names", value=str)
app = App("tried", builder.build())
lenient = App("lenient", builder.build(), processing_errors=dead_letter("failed"))
choosing = App("choosing", builder.build(), processing_errors=lambda failure: dead_letter("chosen"))
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "penstock_cli_tried", raising=False)
    (tmp_path / "penstock_cli_tried.py").write_text(APP)
    return tmp_path


def outcome(*arguments: str, app: str = "app") -> Any:
    found = call("try", f"penstock_cli_tried.py:{app}", *arguments, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


class TestOutcome:
    def test_topics_and_stores_as_tables(self, directory: Path) -> None:
        lines = '{"value": "to be", "timestamp": "2026-01-05T09:00:00Z", "headers": {"a": "b"}}\n"to"\n'
        (directory / "lines.jsonl").write_text(lines)
        found = call("try", "penstock_cli_tried.py", "--input", "lines=lines.jsonl")
        assert found.exit_code == 0, found.output
        shown = [line.strip() for line in found.stdout.splitlines()]
        assert "topic counts" in shown
        assert '│ be  │ 1     │ 2026-01-05T09:00:00.000Z │ {"a": "b"} │' in shown
        assert "│ to  │ 2     │ 2026-01-05T09:00:00.000Z │            │" in shown
        assert "store words" in shown
        assert "│ to  │ 2     │" in shown
        assert any("to, 2026-01-05T09:00:00.000Z – 2026-01-05T09:01:00.000Z" in line for line in shown)
        assert "topic converted: empty" in shown

    def test_a_name_that_is_wider_than_its_table_is_not_broken(self, directory: Path) -> None:
        (directory / "penstock_cli_tried.py").write_text(APP.replace('"words"', '"words-of-all-lines"'))
        (directory / "lines.jsonl").write_text('"to"\n')
        found = call("try", "penstock_cli_tried.py", "--input", "lines=lines.jsonl")
        assert "store words-of-all-lines" in found.stdout.splitlines()

    def test_json_has_everything(self, directory: Path) -> None:
        (directory / "lines.jsonl").write_text('{"key": "k", "value": "to be", "timestamp": 60000}\n')
        found = outcome("--input", "lines=lines.jsonl")
        assert {"key": "to", "value": 1, "timestamp": 60_000, "headers": []} in found["topics"]["counts"]
        assert found["topics"]["converted"] == []
        assert found["stores"]["words"] == [{"key": "be", "value": 1}, {"key": "to", "value": 1}]
        assert {"key": {"key": "to", "start": 60_000, "end": 120_000}, "value": 1} in found["stores"]["per-minute"]
        assert found["dropped"] == []

    def test_rows_beyond_the_limit_are_counted(self, directory: Path) -> None:
        (directory / "lines.jsonl").write_text('"a b c d"\n')
        found = call("try", "penstock_cli_tried.py", "--input", "lines=lines.jsonl", "--limit", "3")
        assert "the first 3 of 4 rows (--limit)" in found.stdout

    def test_global_tables_are_loaded_first(self, directory: Path) -> None:
        (directory / "prices.csv").write_text("key,value\nEUR,10\n")
        (directory / "rates.csv").write_text("key,value\nEUR,1.5\n")
        found = outcome("--input", "prices=prices.csv", "--input", "rates=rates.csv")
        assert [row["value"] for row in found["topics"]["converted"]] == [15.0]

    def test_the_clock_follows_the_records(self, directory: Path) -> None:
        tasks = '{"key": "a", "value": "", "timestamp": 0}\n{"key": "b", "value": "", "timestamp": 600000}\n'
        (directory / "tasks.jsonl").write_text(tasks)
        found = outcome("--input", "tasks=tasks.jsonl")
        assert [row["key"] for row in found["topics"]["reminders"]] == ["a"]
        found = outcome("--input", "tasks=tasks.jsonl", "--advance", "10m")
        assert [row["key"] for row in found["topics"]["reminders"]] == ["a", "b"]

    def test_the_applications_handlers_decide_about_failures(self, directory: Path) -> None:
        (directory / "numbers.jsonl").write_text('"1"\n"x"\n"2"\n')
        found = outcome("--input", "numbers=numbers.jsonl", app="lenient")
        assert [row["value"] for row in found["topics"]["parsed"]] == [1, 2]
        assert [row["value"] for row in found["topics"]["failed"]] == ["x"]

    def test_a_topic_that_a_handler_chooses_is_shown(self, directory: Path) -> None:
        (directory / "numbers.jsonl").write_text('"x"\n')
        found = outcome("--input", "numbers=numbers.jsonl", app="choosing")
        assert [row["value"] for row in found["topics"]["chosen"]] == ["x"]

    def test_deletions_versions_and_strange_times(self, directory: Path) -> None:
        first = '{"key": "a", "value": "Ann", "timestamp": 9223372036854775}\n'
        (directory / "customers.jsonl").write_text(first + '{"key": "b", "value": "Bob"}\n{"key": "b", "value": null}\n')
        found = call("try", "penstock_cli_tried.py", "--input", "customers=customers.jsonl")
        assert found.exit_code == 0, found.output
        assert "│ b   │ null  │ 9223372036854775 │" in found.stdout
        assert "│ a   │ Ann   │\n" in found.stdout  # the newest version
        assert outcome("--input", "customers=customers.jsonl")["stores"]["customers"] == [{"key": "a", "value": "Ann"}]

    def test_skipped_records_are_listed(self, directory: Path) -> None:
        (directory / "prices.jsonl").write_text('{"value": null}\n')
        found = call("try", "penstock_cli_tried.py", "--input", "prices=prices.jsonl")
        assert "skipped" in found.stdout


class TestErrors:
    def test_a_failing_function_names_the_line_of_the_file_and_of_the_program(self, directory: Path) -> None:
        (directory / "numbers.jsonl").write_text('"1"\n"x"\n')
        found = call("try", "penstock_cli_tried.py", "--input", "numbers=numbers.jsonl")
        assert found.exit_code == 10
        assert "processing: numbers.jsonl:2: " in found.output
        assert "penstock_cli_tried.py:" in found.output
        assert str(directory) not in found.output, "the file is named from here"

    def test_an_error_is_one_line_unless_it_is_on_a_terminal(self, directory: Path) -> None:
        command = ("try", "penstock_cli_tried.py")
        assert len(call(*command, COLUMNS="40").output.splitlines()) == 1
        wrapped = call(*command, COLUMNS="40", FORCE_COLOR="1", TERM="xterm").output.splitlines()
        assert len(wrapped) > 1
        assert "\x1b[1;31mconfig\x1b[0m: try: give it" in wrapped[0]

    def test_a_value_of_another_type_names_the_line(self, directory: Path) -> None:
        (directory / "numbers.jsonl").write_text("1\n")
        found = call("try", "penstock_cli_tried.py", "--input", "numbers=numbers.jsonl")
        assert found.exit_code == 2
        assert "config: numbers.jsonl:1: the value is not what" in found.output

    def test_without_input_it_says_what_can_be_given(self, directory: Path) -> None:
        found = call("try", "penstock_cli_tried.py")
        assert found.exit_code == 2
        assert (
            "give it records with --input TOPIC=FILE. The topology reads: customers, lines, numbers, prices, rates, tasks."
            in found.output
        )

    def test_an_invalid_duration_is_refused(self, directory: Path) -> None:
        found = call("try", "penstock_cli_tried.py", "--advance", "soon")
        assert found.exit_code == 3
        assert "--advance" in found.output
