"""The comparison with Java: its made-up values are of their schemas, and a difference is found."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from penstock.serdes import Avro
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from verification.registry.peer import RECORDS, SCHEMAS, Peer, compared, made


class Echo(Peer):
    """Writes what it reads, and for a schema what a serde here would; it may get every value of one topic wrong."""

    def __init__(self, registry: Registry, wrong: str = "") -> None:
        super().__init__("")
        self._registry = registry
        self._wrong = wrong

    def ask(self, lines: Sequence[str]) -> list[bytes]:
        answers: list[bytes] = []
        for topic, *rest in (line.split("\t") for line in lines):
            if len(rest) == 1:
                answers.append(bytes.fromhex(rest[0]) + (b"!" if topic == self._wrong else b""))
                continue
            serde = Avro(schema=rest[0]).connected(self._registry).for_topic(topic, is_key=False)
            name = topic.removeprefix("peer-")
            answers += [serde.serialize(made(SCHEMAS[name], random.Random(number), {})) for number in range(int(rest[1]))]
        return answers


@pytest.fixture
def registry() -> Registry:
    return Registry(MemorySource())


def test_equal_bytes_are_no_failure(registry: Registry) -> None:
    results = list(compared(registry, Echo(registry), seed=1))
    assert len(results) == 2 * len(SCHEMAS) * RECORDS
    assert [wrong for _, wrong in results if wrong is not None] == []


def test_other_bytes_are(registry: Registry) -> None:
    wrong = [name for name, difference in compared(registry, Echo(registry, "peer-texts"), seed=1) if difference is not None]
    assert wrong == [f"python to java: texts {number}" for number in range(RECORDS)]
