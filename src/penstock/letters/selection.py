"""Selects dead letters, and counts them by kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ConfigError
from penstock.letters.letter import Letter

_SPAN = re.compile(r"(\d{1,9}):(\d{1,18})(?:-(\d{1,18}))?")


class Span(NamedTuple):
    """Offsets of one partition of the dead-letter topic, both ends inclusive."""

    partition: int
    first: int
    last: int

    @classmethod
    def read(cls, text: str) -> Span:
        """Parse `partition:offset` or `partition:first-last`."""
        found = _SPAN.fullmatch(text)
        if found is None:
            raise ConfigError(f"--offset: expected partition:offset or partition:first-last, such as 0:17-42, got {text!r}")
        partition, first, last = found.groups()
        return cls(int(partition), int(first), int(last or first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A filter of letters: all given conditions must hold. An error may be named without its module."""

    node: str | None = None
    error: str | None = None
    source_topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    spans: tuple[Span, ...] = ()

    def takes(self, letter: Letter) -> bool:
        """Whether a letter matches."""
        source = letter.source
        return (
            (self.node is None or letter.node == self.node)
            and (self.error is None or self.error in {letter.error, letter.error.rpartition(".")[2]})
            and (self.source_topic is None or (source is not None and source.topic == self.source_topic))
            and (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (self.until_ms is None or letter.time_ms < self.until_ms)
            and (not self.spans or any(_holds(span, letter) for span in self.spans))
        )


def _holds(span: Span, letter: Letter) -> bool:
    return span.partition == letter.place.partition and span.first <= letter.place.offset <= span.last


class Group(NamedTuple):
    """Letters that failed in the same way, with the times of the first and the last."""

    application: str
    node: str
    error: str
    source_topic: str
    letters: int
    first_ms: int
    last_ms: int


def grouped(letters: Iterable[Letter]) -> list[Group]:
    """Count letters by application, node, error and source topic; the largest group first."""
    found: dict[tuple[str, str, str, str], Group] = {}
    for letter in letters:
        source, time = letter.source, letter.time_ms
        name = (letter.application, letter.node, letter.error, "" if source is None else source.topic)
        known = found.get(name, Group(*name, 0, time, time))
        found[name] = Group(*name, known.letters + 1, min(known.first_ms, time), max(known.last_ms, time))
    return sorted(found.values(), key=lambda group: (-group.letters, group))
