"""Sample files: what a line means to each serde, in which order records come, and errors with file and line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
from google.protobuf.duration_pb2 import Duration

from penstock import Avro, Int32, MsgPack, Protobuf, SessionWindowed, StreamsBuilder, TimeWindowed, Topology, Windowed
from penstock.cli.samples.files import Entry, read_entries
from penstock.cli.samples.records import read_samples
from penstock.cli.samples.values import value_of
from penstock.errors import ConfigError, SerializationError
from penstock.serdes import Float32, Int16, Json, List, Serde, serde_of


@dataclass
class Click:
    page: str
    at: int


class Point(msgspec.Struct):
    x: float


class Model(pydantic.BaseModel):
    n: int


class Own(Serde[Any]):
    def serialize(self, value: Any, /) -> bytes:
        return repr(value).encode()

    def deserialize(self, data: bytes, /) -> Any:
        raise NotImplementedError


def entries(path: Path, text: str) -> list[Entry]:
    path.write_text(text, encoding="utf-8")
    return list(read_entries(path))


class TestJsonLines:
    def test_a_line_is_a_value(self, tmp_path: Path) -> None:
        found = entries(tmp_path / "in.jsonl", '"a"\n\n{"x": 1}\n7\nnull\n')
        assert [entry.value for entry in found] == ["a", {"x": 1}, 7, None]
        assert [entry.place.line for entry in found] == [1, 3, 4, 5]
        assert {(entry.key, entry.timestamp, entry.headers) for entry in found} == {(None, None, ())}

    def test_an_object_with_a_value_and_fields_of_a_record_only_is_a_record(self, tmp_path: Path) -> None:
        lines = (
            '{"key": "k", "value": {"x": 1}, "timestamp": 5, "headers": {"a": "b", "c": null}}\n'
            '{"value": null, "timestamp": "1970-01-01T00:00:01Z"}\n'
            '{"value": 1, "other": 2}\n'
            '{"key": "k"}\n'
        )
        first, second, third, fourth = entries(tmp_path / "in.jsonl", lines)
        assert (first.key, first.value, first.timestamp) == ("k", {"x": 1}, 5)
        assert first.headers == (("a", b"b"), ("c", None))
        assert (second.value, second.timestamp) == (None, 1_000)
        assert third.value == {"value": 1, "other": 2}
        assert fourth.value == {"key": "k"}

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("{", "Invalid or ambiguous JSON"),
            ('{"a": 1, "a": 2}', "duplicate name"),
            ('{"value": 1, "timestamp": "yesterday"}', "timestamp: invalid instant"),
            ('{"value": 1, "timestamp": 1.5}', "timestamp: expected an ISO 8601 string"),
            ('{"value": 1, "timestamp": -1}', "expected milliseconds since 1970"),
            ('{"value": 1, "headers": ["a"]}', "headers: expected an object"),
            ('{"value": 1, "headers": {"a": 1}}', "headers: expected an object"),
        ],
    )
    def test_an_error_names_file_and_line(self, tmp_path: Path, line: str, why: str) -> None:
        path = tmp_path / "in.jsonl"
        with pytest.raises(ConfigError) as raised:
            entries(path, f"1\n{line}\n")
        assert str(raised.value).startswith(f"{path}:2: ")
        assert why in str(raised.value)

    def test_bytes_that_are_not_text_are_an_error_with_the_line(self, tmp_path: Path) -> None:
        path = tmp_path / "in.jsonl"
        path.write_bytes(b'1\n"\xff"\n')
        with pytest.raises(ConfigError, match=r"in\.jsonl:2: "):
            list(read_entries(path))

    def test_a_missing_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"Cannot read .*nothing\.jsonl': No such file"):
            list(read_entries(tmp_path / "nothing.jsonl"))


class TestCsv:
    def test_a_row_is_an_object_of_its_columns(self, tmp_path: Path) -> None:
        text = 'key,page,at,timestamp\nk1,"a,b",7,1000\n,c,8,\nk3,d,9,1970-01-01T00:00:02Z\n'
        first, second, third = entries(tmp_path / "in.csv", text)
        assert (first.key, first.value, first.timestamp) == ("k1", {"page": "a,b", "at": "7"}, 1_000)
        assert (second.key, second.timestamp) == (None, None)
        assert third.timestamp == 2_000
        assert first.is_text

    def test_a_single_column_value_is_the_value_itself(self, tmp_path: Path) -> None:
        [entry] = entries(tmp_path / "in.csv", "key,value\nk,12\n")
        assert (entry.key, entry.value) == ("k", "12")

    @pytest.mark.parametrize("row", ["1", "1,2,3", '"1'])
    def test_an_error_names_file_and_line(self, tmp_path: Path, row: str) -> None:
        with pytest.raises(ConfigError, match=r"in\.csv:3: "):
            entries(tmp_path / "in.csv", f"a,b\n1,2\n{row}\n")


class TestValues:
    @pytest.mark.parametrize(
        ("kind", "document", "value"),
        [
            (str, "a", "a"),
            (bytes, "ä", "ä".encode()),
            (int, 7, 7),
            (Int16(), 7, 7),
            (Int32(), 7, 7),
            (float, 7, 7.0),
            (Float32(), 0.5, 0.5),
            (bool, True, True),
            (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
            (dict, {"a": [1]}, {"a": [1]}),
            (MsgPack(), {"a": [1]}, {"a": [1]}),
            (Click, {"page": "/", "at": 7}, Click("/", 7)),
            (MsgPack(Click), {"page": "/", "at": 7}, Click("/", 7)),
            (Point, {"x": 1}, Point(1.0)),
            (Model, {"n": 1}, Model(n=1)),
            (list[int], [1, 2], [1, 2]),
            (List(UUID), ["00000000-0000-0000-0000-000000000001", None], [UUID(int=1), None]),
            (TimeWindowed(str, 10), {"key": "k", "start": 0, "end": 10}, Windowed("k", 0, 10)),
            (SessionWindowed(int), {"key": 1, "start": 0, "end": 5}, Windowed(1, 0, 5)),
            (Own(), {"anything": 1}, {"anything": 1}),
            (Click, None, None),
        ],
    )
    def test_a_document_becomes_the_serdes_type_and_can_be_written(self, kind: Any, document: Any, value: Any) -> None:
        serde = serde_of(kind)
        assert value_of(serde, document) == value
        if value is not None:
            assert isinstance(serde.serialize(value), bytes)

    @pytest.mark.parametrize(
        ("kind", "document", "value"),
        [
            (int, "7", 7),
            (float, "1.5", 1.5),
            (bool, "true", True),
            (str, "7", "7"),
            (Click, {"page": "/", "at": "7"}, Click("/", 7)),
            (Model, {"n": "7"}, Model(n=7)),
            (dict, {"at": "7"}, {"at": "7"}),
        ],
    )
    def test_numbers_are_read_from_text_if_all_is_text(self, kind: Any, document: Any, value: Any) -> None:
        assert value_of(serde_of(kind), document, is_text=True) == value

    @pytest.mark.parametrize(
        ("kind", "document"),
        [
            (str, 7),
            (bytes, 7),
            (int, "7"),
            (int, True),
            (int, 1.5),
            (bool, 1),
            (UUID, "x"),
            (Click, {"page": "/"}),
            (Click, {"page": "/", "at": "7"}),
            (Model, {}),
            (List(int), {"a": 1}),
            (TimeWindowed(str, 10), "k"),
            (type(None), 1),
        ],
    )
    def test_a_document_of_another_type_is_refused(self, kind: Any, document: Any) -> None:
        serde = serde_of(kind)
        with pytest.raises(SerializationError):
            serde.serialize(value_of(serde, document))

    def test_protobuf_takes_json_as_it_defines_it(self) -> None:
        assert value_of(Protobuf(Duration), "90s") == Duration(seconds=90)
        with pytest.raises(SerializationError, match="Protobuf"):
            value_of(Protobuf(Duration), "soon")

    def test_avro_takes_its_type(self) -> None:
        assert value_of(Avro(Click), {"page": "/", "at": 7}) == Click("/", 7)


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("clicks", value=Click, timestamp=lambda record: record.value.at).to("a")
    builder.stream("lines", value=str).to("b", value=str)
    builder.global_table("rates", value=float)
    return builder.build()


class TestOrder:
    def read(self, directory: Path, **texts: str) -> list[tuple[str, Any]]:
        for name, text in texts.items():
            (directory / name).write_text(text)
        found = read_samples([f"{name}={directory / name}" for name in texts], topology(), now=50)
        return [(sample.topic, sample.time) for sample in (*found.global_tables, *found.streams)]

    def test_records_come_by_event_time_and_each_file_keeps_its_order(self, tmp_path: Path) -> None:
        clicks = '{"page": "/", "at": 30}\n{"page": "/", "at": 10}\n{"page": "/", "at": 70}\n'
        lines = '{"value": "a", "timestamp": 20}\n{"value": "b", "timestamp": 60}\n'
        assert self.read(tmp_path, clicks=clicks, lines=lines) == [
            ("lines", 20),
            ("clicks", 30),
            ("clicks", 10),
            ("lines", 60),
            ("clicks", 70),
        ]

    def test_a_record_without_a_timestamp_has_that_of_the_one_before(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, lines='"a"\n{"value": "b", "timestamp": 60}\n"c"\n')
        assert [time for _, time in found] == [50, 60, 60]

    def test_global_tables_come_first(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, lines='{"value": "a", "timestamp": 20}\n', rates='{"key": "EUR", "value": 1.1}\n')
        assert [topic for topic, _ in found] == ["rates", "lines"]

    def test_a_failing_timestamp_function_is_left_to_the_run(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=dict, timestamp=lambda record: record.value["missing"]).to("out")
        path = tmp_path / "in"
        path.write_text('{"value": {}, "timestamp": 7}\n')
        [sample] = read_samples([f"in={path}"], builder.build(), now=0).streams
        assert sample.time == 7

    @pytest.mark.parametrize("text", ["lines", "=x", "lines="])
    def test_an_invalid_option_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="--input: expected TOPIC=FILE"):
            read_samples([text], topology(), now=0)

    def test_an_unknown_topic_is_an_error_that_lists_the_known_ones(self) -> None:
        with pytest.raises(ConfigError, match=r"does not read that topic\. It reads: clicks, lines, rates"):
            read_samples(["line=x"], topology(), now=0)

    def test_a_value_of_another_type_names_line_and_source(self, tmp_path: Path) -> None:
        path = tmp_path / "in.jsonl"
        path.write_text('{"page": "/", "at": 1}\n{"page": 2, "at": 1}\n')
        with pytest.raises(ConfigError) as raised:
            read_samples([f"clicks={path}"], topology(), now=0)
        said = str(raised.value)
        assert said.startswith(f"{path}:2: the value is not what ")
        assert "test_samples.py" in said
        assert said.count("Json(Click)") == 1

    def test_a_topic_of_a_pattern_is_read_by_its_source(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream(re.compile("logs-.*"), value=Json()).to("out")
        path = tmp_path / "in"
        path.write_text("1\n")
        [sample] = read_samples([f"logs-eu={path}"], builder.build(), now=0).streams
        assert sample.topic == "logs-eu"
