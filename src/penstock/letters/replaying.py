"""Which letters may be replayed: what the ledger of earlier replays says, and what would make no sense.

A letter's record is replayed once. Of several letters of one record, for several nodes may have failed on it, one replay through
the source is for all of them; replays into nodes are one for each.
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
"""How the names of an application's own topics end."""

TOO_OFTEN = "it has failed again after as many replays as --max-attempts allows"


class Target(Enum):
    """Where a letter's record is replayed to: its source topic for all nodes there, or for the node that failed only."""

    SOURCE = "source"
    NODE = "node"


class Done(msgspec.Struct, frozen=True):
    """What the ledger keeps of a replay: from which topic (by its id), of which record, into which node, the how manieth."""

    topic_id: str
    source: str
    node: str | None
    attempt: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Done).decode


@dataclass(slots=True)
class Ledger:
    """What has been replayed out of one dead-letter topic.

    A topic that was deleted and made again has another id and new letters at old offsets: what is known of the old ones is not
    about them.
    """

    topic_id: str
    _letters: set[bytes] = field(default_factory=set)
    _nodes: dict[str, set[str | None]] = field(default_factory=dict)

    def take(self, key: bytes, value: bytes | None) -> None:
        """A row of the ledger's topic."""
        done = None if value is None else _decode(value)
        if done is not None and done.topic_id == self.topic_id:
            self._letters.add(key)
            self._nodes.setdefault(done.source, set()).add(done.node)

    def note(self, replay: Replay) -> None:
        """A replay, from now on known."""
        self.take(*self.row(replay))

    def row(self, replay: Replay) -> tuple[bytes, bytes]:
        """The key and the value by which the topic keeps a replay."""
        done = Done(self.topic_id, _place(replay.source), replay.node, replay.letter.attempt + 1)
        return _place(replay.letter.place).encode(), _encode(done)

    def has(self, letter: Letter) -> bool:
        """Whether the letter was replayed."""
        return _place(letter.place).encode() in self._letters

    def nodes(self, source: RecordMetadata) -> set[str | None]:
        """Into which nodes a record was replayed; None among them stands for all."""
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
    """What a replay goes by.

    `partitions` tells how many partitions a topic has, None if there is none of that name. `obstacle` says what is in the way of
    a record from a topic to a node, None if nothing is; it is asked for replays into nodes only.
    """

    application: str
    target: Target
    max_attempts: int
    partitions: Callable[[str], int | None]
    obstacle: Callable[[str, str], str | None] = lambda topic, node: None


def judged(letter: Letter, ledger: Ledger, rules: Rules) -> Replay | Refused:
    """Whether a letter is replayed."""
    source = letter.source
    if not letter.application:
        return Refused(letter, "it does not say which application it is of")
    if letter.application != rules.application:
        return Refused(letter, f"of application {letter.application!r}: name it to replay its letters")
    if ledger.has(letter):
        return Refused(letter, "already replayed")
    if letter.kind == FailureKind.LATE.value:
        return Refused(letter, "a late record stays late: its time is behind the watermark for good")
    if source is None:
        return Refused(letter, "it follows from a timer or a cache, and from no single record that could be sent again")
    if letter.attempt >= rules.max_attempts:
        return Refused(letter, TOO_OFTEN)
    why = _unfit(source, rules) or _covered(letter, source, ledger, rules.target)
    if why is None and rules.target is Target.NODE:
        why = rules.obstacle(source.topic, letter.node)
    if why is not None:
        return Refused(letter, why)
    return Replay(letter, source, letter.node if rules.target is Target.NODE else None)


def _unfit(source: RecordMetadata, rules: Rules) -> str | None:
    """Why nothing can be sent to where the record came from. Whoever can write letters must not write other topics by them."""
    own = source.topic.startswith(f"{rules.application}-") and source.topic.endswith(OWN_TOPICS)
    if own or source.topic.startswith("__"):
        return f"it names {source.topic!r} as its source, which is nobody's source"
    count = rules.partitions(source.topic)
    if count is None:
        return f"its source topic {source.topic!r} does not exist"
    if not 0 <= source.partition < count:
        return f"its source topic {source.topic!r} has no partition {source.partition}"
    return None


def _covered(letter: Letter, source: RecordMetadata, ledger: Ledger, target: Target) -> str | None:
    """Why another replay of the same record would be one too many."""
    nodes = ledger.nodes(source)
    if None in nodes or (target is Target.NODE and letter.node in nodes):
        return "its record was replayed already, for another letter about it"
    if nodes and target is Target.SOURCE:
        return "its record was replayed into another node that had failed on it: replay it --to node, too"
    return None


def _place(place: RecordMetadata) -> str:
    return f"{place.topic}-{place.partition}-{place.offset}"
