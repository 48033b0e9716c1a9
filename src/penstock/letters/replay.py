"""Decides which letters may be replayed, from the ledger of earlier replays and the letters themselves.

A letter's record is replayed once. A record has several letters if several nodes failed on it: one replay through the source
covers them all; a replay into a node covers only that node's letter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from penstock.handlers import FailureKind
from penstock.letters.letter import Letter
from penstock.records import RecordMetadata

OWN_TOPICS = ("-changelog", "-replayed")
"""The suffixes of an application's own topics."""

TOO_OFTEN = "it failed again after as many replays as --max-attempts allows"


class Target(Enum):
    """Where a letter's record is replayed to: its source topic, for all nodes there or only for the node that failed."""

    SOURCE = "source"
    NODE = "node"


class Done(msgspec.Struct, frozen=True):
    """The ledger's entry for a replay: the dead-letter topic's id, the record, the node, and the number of the attempt."""

    topic_id: str
    source: str
    node: str | None
    attempt: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Done).decode


@dataclass(slots=True)
class Ledger:
    """The replays from one dead-letter topic.

    A topic that was deleted and created again has another id, and new letters at the old offsets; entries with the old id are
    ignored.
    """

    topic_id: str
    _letters: set[bytes] = field(default_factory=set)
    _nodes: dict[str, set[str | None]] = field(default_factory=dict)

    def take(self, key: bytes, value: bytes | None) -> None:
        """Take in a row of the ledger's topic."""
        done = None if value is None else _decode(value)
        if done is not None and done.topic_id == self.topic_id:
            self._letters.add(key)
            self._nodes.setdefault(done.source, set()).add(done.node)

    def note(self, replay: Replay) -> None:
        """Add a replay."""
        self.take(*self.row(replay))

    def row(self, replay: Replay) -> tuple[bytes, bytes]:
        """Return a replay as a row of the ledger's topic: key and value."""
        done = Done(self.topic_id, _place(replay.source), replay.node, replay.letter.attempt + 1)
        return _place(replay.letter.place).encode(), _encode(done)

    def has(self, letter: Letter) -> bool:
        """Whether the letter was already replayed."""
        return _place(letter.place).encode() in self._letters

    def nodes(self, source: RecordMetadata) -> set[str | None]:
        """Return the nodes that a record was replayed into; None among them means all."""
        return self._nodes.get(_place(source), set())

    def __len__(self) -> int:
        return len(self._letters)


@dataclass(frozen=True, slots=True)
class Replay:
    """A letter that can be replayed, with where its record came from; `node` is None for a replay through the source."""

    letter: Letter
    source: RecordMetadata
    node: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A letter that is not replayed, and why."""

    letter: Letter
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a replay.

    `partitions` returns a topic's number of partitions, None if the topic does not exist. `obstacle` returns what keeps a record
    of a topic from a node, None if nothing does; it is called only for replays into nodes.
    """

    application: str
    target: Target
    max_attempts: int
    partitions: Callable[[str], int | None]
    obstacle: Callable[[str, str], str | None] = lambda topic, node: None


def judged(letter: Letter, ledger: Ledger, rules: Rules) -> Replay | Refused:
    """Decide whether a letter is replayed."""
    source = letter.source
    if not letter.application:
        return Refused(letter, "it does not say which application it belongs to")
    if letter.application != rules.application:
        return Refused(letter, f"it belongs to application {letter.application!r}: replay it with --application-id")
    if ledger.has(letter):
        return Refused(letter, "already replayed")
    if letter.kind == FailureKind.LATE.value:
        return Refused(letter, "a late record stays late: the watermark never goes back")
    if source is None:
        return Refused(letter, "it comes from a timer or a cache, not from a single record that could be replayed")
    if letter.attempt >= rules.max_attempts:
        return Refused(letter, TOO_OFTEN)
    why = _unfit(source, rules) or _covered(letter, source, ledger, rules.target)
    if why is None and rules.target is Target.NODE:
        why = rules.obstacle(source.topic, letter.node)
    if why is not None:
        return Refused(letter, why)
    return Replay(letter, source, letter.node if rules.target is Target.NODE else None)


def _unfit(source: RecordMetadata, rules: Rules) -> str | None:
    """Return why nothing can be sent to the source topic. Someone who can write letters must not be able to use them to write to
    other topics.
    """
    own = source.topic.startswith(f"{rules.application}-") and source.topic.endswith(OWN_TOPICS)
    if own or source.topic.startswith("__"):
        return f"its source topic {source.topic!r} is internal"
    count = rules.partitions(source.topic)
    if count is None:
        return f"its source topic {source.topic!r} does not exist"
    if not 0 <= source.partition < count:
        return f"its source topic {source.topic!r} has no partition {source.partition}"
    return None


def _covered(letter: Letter, source: RecordMetadata, ledger: Ledger, target: Target) -> str | None:
    """Return why another replay would process the same record twice."""
    nodes = ledger.nodes(source)
    if None in nodes or (target is Target.NODE and letter.node in nodes):
        return "its record was already replayed, for another letter of the same record"
    if nodes and target is Target.SOURCE:
        return "its record was already replayed into another node that failed on it: use --to node for this letter, too"
    return None


def _place(place: RecordMetadata) -> str:
    return f"{place.topic}-{place.partition}-{place.offset}"
