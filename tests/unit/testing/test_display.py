"""A test driver in a notebook: its output topics and stores as tables, from which nothing is removed."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from penstock import Processor, Record, StreamsBuilder, key_value_store, session, tumbling
from penstock.markup import ROWS, html_link, html_table
from penstock.testing import TopologyTestDriver

HOSTILE = "<img src=x onerror=alert(1)>\"'&\x00\x1b\u202egnp.exe"


class Cells(HTMLParser):
    """The texts of all cells, and the names of all tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self._is_cell = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in {"td", "th", "caption"}:
            self.cells.append("")
        self._is_cell = tag in {"td", "th", "caption"}

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.cells[-1] += data


class Remember(Processor[str, str, str, str]):
    """Keeps the last value, and sets a timer, whose store is not shown."""

    def process(self, record: Record[str, str]) -> None:
        if record.key is not None:
            self.context.store("last").put(record.key, record.value)
            self.context.timers.processing_time(after="1h")

    def on_timer(self, timer: object) -> None:
        raise NotImplementedError


def test_an_output_topic_is_a_table_and_keeps_its_records() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=dict).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe({"total": 5}, key="a", timestamp=7, headers=(("tenant", b"acme"),))
        out = driver.output("out")
        cells = Cells(out._repr_html_()).cells
        assert cells == ["key", "value", "timestamp", "headers", "a", "{'total': 5}", "7", "{'tenant': b'acme'}"]
        assert len(out) == 1


def test_bytes_that_the_serde_cannot_read_are_shown_as_they_are() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).to("out", value=str)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("text", key="a", timestamp=0)
        assert Cells(driver.output("out", value=int)._repr_html_()).cells == ["key", "value", "timestamp", "a", "b'text'", "0"]


def test_a_driver_shows_its_topics_its_stores_and_what_it_has_dropped() -> None:
    builder = StreamsBuilder(value=str)
    builder.add_state_store(key_value_store("last", value=str))
    lines = builder.stream("in")
    lines.process(Remember, stores=["last"], name="remember")
    lines.group_by_key().windowed_by(tumbling("1m")).count(store="per-minute")
    lines.group_by_key().windowed_by(session("1m")).count(store="sessions")
    lines.to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("x", key="a", timestamp=1_000)
        driver.input("in").pipe("y", timestamp=2_000)
        text = driver._repr_html_()
        cells = Cells(text).cells
        assert [cell for cell in cells if cell.startswith(("topic ", "store ", "dropped"))] == [
            "topic out",
            "store last",
            "store per-minute",
            "store sessions",
            "dropped",
        ]
        assert "'a' from 0 to 60000" in cells
        assert "'a' from 1000 to 1000" in cells
        assert len(driver.output("out")) == 2


def test_a_driver_that_has_nothing_says_so() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        assert "Nothing has come out yet" in driver._repr_html_()


def test_what_records_contain_is_only_text() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).to("out", value=str)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe(HOSTILE, key=HOSTILE, timestamp=0)
        found = Cells(driver._repr_html_())
    assert found.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert repr(HOSTILE) in found.cells
    assert "\u202e" not in "".join(found.cells)


@pytest.mark.parametrize(("count", "is_cut"), [(ROWS, False), (ROWS + 1, True)])
def test_a_long_table_is_cut_and_says_so(count: int, is_cut: bool) -> None:
    cells = Cells(html_table(("n",), ((number,) for number in range(count)))).cells
    assert (cells[-1] == "… and more") is is_cut
    assert len(cells) == 1 + ROWS + is_cut


def test_a_long_value_is_cut() -> None:
    assert len(Cells(html_table(("n",), [("x" * 10_000,)])).cells[1]) == 301


def test_a_link_is_escaped() -> None:
    assert html_link('http://a/"><script>', "a<b").count("<") == 4
