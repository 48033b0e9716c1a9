"""What a start with another topology would do to each store and to each source's offsets: the judgements, as values.

They say what a start does today. No store is converted: one whose layout has changed is refused, as is the whole start.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from penstock.plan.compatibility import TopologyFacts, layout_change
from penstock.topology import SourceNode

_BY_POSITION = re.compile(r"-\d{10}")
"""Names that count nodes, as Kafka Streams gives them: `KSTREAM-AGGREGATE-STATE-STORE-0000000003`."""


class Verdict(Enum):
    """What becomes of a store, or of a source's offsets."""

    KEPT = "kept"
    """It is as it was committed."""
    NEW = "new"
    """A store begins empty; a source begins where it says."""
    REBUILT = "rebuilt"
    """A store that was gone for a while comes back from its changelog, as it was when it left."""
    LOST = "lost"
    """A store is left behind: its changelog stays, and nobody reads it."""
    DROPPED = "dropped"
    """A source is no longer read; its offsets stay."""
    REFUSED = "refused"
    """The start is refused because of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """The verdict on one store or source topic, and why."""

    name: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class Changes:
    """All that a start would do; `refusals` are the reasons that concern no single store."""

    stores: tuple[Change, ...]
    sources: tuple[Change, ...]
    refusals: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the start would be refused; then nothing happens to any store."""
        return bool(self.refusals) or any(change.verdict is Verdict.REFUSED for change in (*self.stores, *self.sources))

    @property
    def loses_state(self) -> bool:
        """Whether a store would be left behind."""
        return any(change.verdict is Verdict.LOST for change in self.stores)


def store_changes(
    committed: TopologyFacts | None,
    now: TopologyFacts,
    *,
    refused: Mapping[str, str] = MappingProxyType({}),
    unlogged: Collection[str] = (),
    global_stores: Iterable[str] = (),
) -> tuple[Change, ...]:
    """The verdict on each store of the topology, and on those it no longer has.

    `refused` are stores whose changelog is not as it would have to be, with the reason; `unlogged` those that have none.

    Example:
        >>> from penstock import StreamsBuilder
        >>> from penstock.plan import facts, store_changes
        >>> def counting(store):
        ...     builder = StreamsBuilder()
        ...     builder.stream("lines", value=str).group_by_key().count(store=store)
        ...     return builder.build()
        >>> before, after = facts(counting("words"), "1"), facts(counting("totals"), "2")
        >>> [(change.name, change.verdict.value) for change in store_changes(before, after)]
        [('totals', 'new'), ('words', 'lost')]
    """
    judged = [_store(committed, now, name, refused.get(name), name in unlogged) for name in now.stores]
    followed = [Change(name, Verdict.KEPT, "it follows its topic, whatever the topology was") for name in global_stores]
    if committed is None:
        return (*judged, *followed)
    left = sorted(committed.stores.keys() - now.stores.keys() - set(committed.gone))
    return (*judged, *followed, *(_lost(committed, now, name) for name in left))


def source_changes(
    read_now: Mapping[str, SourceNode],
    committed: Collection[str],
    read_before: Collection[str],
    *,
    resumed: Mapping[str, int] = MappingProxyType({}),
    added: Collection[tuple[str, int]] = (),
    lost: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Change, ...]:
    """The verdict on each source topic: those that are read now, those with offsets, those the committed topology has read.

    `resumed` are topics that the last commit did not cover, with the epoch that did; `added` are partitions that came after it;
    `lost` says what of a topic is gone and is skipped.
    """
    now = []
    for topic, node in sorted(read_now.items()):
        new = sorted(partition for name, partition in added if name == topic)
        change = _known_source(topic, resumed.get(topic), new) if topic in committed else _new_source(topic, node, bool(new))
        now.append(replace(change, why=f"{change.why}; {lost[topic]}") if topic in lost else change)
    dropped = [
        Change(topic, Verdict.DROPPED, "its offsets stay: a later topology that reads it again goes on from them")
        for topic in sorted(set(committed) & set(read_before) - read_now.keys())
    ]
    return (*now, *dropped)


def _store(committed: TopologyFacts | None, now: TopologyFacts, name: str, refusal: str | None, is_unlogged: bool) -> Change:
    change = None if committed is None else layout_change(committed, now, name)
    if change is not None or refusal is not None:
        return Change(name, Verdict.REFUSED, change or refusal or "")
    if committed is None or name not in committed.stores:
        return Change(name, Verdict.NEW, "begins empty: what was read before is not read again")
    if is_unlogged:
        return Change(name, Verdict.KEPT, "it has no changelog: only while the files in state_dir are as the last run left them")
    if name in committed.gone:
        return Change(name, Verdict.REBUILT, "from its changelog, as it was when it left; what came since is missing")
    if _BY_POSITION.search(name) and committed.fingerprint != now.fingerprint:
        return Change(name, Verdict.KEPT, "by a name that counts nodes: make sure that it is the same store, and name it")
    return Change(name, Verdict.KEPT, "as it was committed")


def _lost(committed: TopologyFacts, now: TopologyFacts, name: str) -> Change:
    layout = committed.stores[name]
    alike = [new for new in now.stores if new not in committed.stores and now.stores[new] == layout]
    hint = f"; the new {alike[0]!r} has the same layout: if it is the same store, keep the name" if len(alike) == 1 else ""
    return Change(name, Verdict.LOST, f"its changelog stays, and nobody reads it{hint}")


def _known_source(topic: str, left_at: int | None, new: Sequence[int]) -> Change:
    begun = f"; partitions that came since begin at their earliest record: {', '.join(map(str, new))}" if new else ""
    if left_at is not None:
        return Change(
            topic, Verdict.KEPT, f"goes on where it was left at epoch {left_at}: the last topology did not read it{begun}"
        )
    return Change(topic, Verdict.KEPT, f"goes on from the committed offsets{begun}")


def _new_source(topic: str, node: SourceNode, came_since: bool) -> Change:
    if came_since:
        return Change(topic, Verdict.NEW, "came after the last commit: begins at its earliest record")
    if node.reset == "none":
        return Change(topic, Verdict.REFUSED, f"it has no committed offset, and its source says reset='none' ({node.line})")
    if node.reset in (None, "earliest"):
        return Change(topic, Verdict.NEW, "begins at its earliest record")
    if node.reset == "latest":
        return Change(topic, Verdict.NEW, "begins at its end: what is there now is not read")
    return Change(topic, Verdict.NEW, f"begins {node.reset} ms back from the start")
