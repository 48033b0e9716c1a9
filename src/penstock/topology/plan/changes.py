"""What a start with another topology would do to each store and to each source's offsets, as values.

Values are converted if the topology says how. If a store's layout has changed otherwise, the whole start is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from penstock.topology import SourceNode
from penstock.topology.plan.compatibility import TopologyFacts, migrations, refused_stores, renamed, renames

_BY_POSITION = re.compile(r"-\d{10}")
"""Generated names with a node number, as in Kafka Streams: `KSTREAM-AGGREGATE-STATE-STORE-0000000003`."""


class Verdict(Enum):
    """What happens to a store, or to a source's offsets."""

    KEPT = "kept"
    """As committed."""
    NEW = "new"
    """A store starts empty; a source starts at its reset position."""
    RENAMED = "renamed"
    """A store gets the content of the one whose name it had, before records are processed."""
    MIGRATED = "migrated"
    """Every value of a store is converted to its new version before records are processed."""
    REBUILT = "rebuilt"
    """A store that was removed and added again is restored from its changelog, as it was when removed."""
    LOST = "lost"
    """A store is removed: its changelog is kept but no longer read."""
    DROPPED = "dropped"
    """A source is no longer read; its offsets are kept."""
    REFUSED = "refused"
    """The start is refused because of it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one store or source topic, and the reason."""

    name: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything a start would do; `refusals` are reasons that do not concern a single store."""

    stores: tuple[Decision, ...]
    sources: tuple[Decision, ...]
    refusals: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the start would be refused; then nothing happens to any store."""
        return bool(self.refusals) or any(change.verdict is Verdict.REFUSED for change in (*self.stores, *self.sources))

    @property
    def loses_state(self) -> bool:
        """Whether a store would be lost."""
        return any(change.verdict is Verdict.LOST for change in self.stores)


def store_changes(
    committed: TopologyFacts | None,
    now: TopologyFacts,
    *,
    refused: Mapping[str, str] = MappingProxyType({}),
    unlogged: Collection[str] = (),
    convertible: Collection[str] = (),
    declared: Mapping[str, str] = MappingProxyType({}),
    global_stores: Iterable[str] = (),
) -> tuple[Decision, ...]:
    """Return the verdict on each store of the topology, and on those it no longer has.

    `refused` are stores whose changelog is not as required, with the reason; `unlogged` are those without one; `convertible`
    those whose values of the version before can be converted; `declared` those that take over another one's content.

    Example:
        >>> from penstock import StreamsBuilder
        >>> from penstock.topology.plan import facts, store_changes
        >>> def counting(store):
        ...     builder = StreamsBuilder()
        ...     builder.stream("lines", value=str).group_by_key().count(store=store)
        ...     return builder.build()
        >>> before, after = facts(counting("words"), "1"), facts(counting("totals"), "2")
        >>> [(change.name, change.verdict.value) for change in store_changes(before, after)]
        [('totals', 'new'), ('words', 'lost')]
    """
    reasons, pending = dict(refused), renames(committed, now, declared)
    if committed is not None:
        reasons |= refused_stores(committed, now, convertible, declared)
        committed = renamed(committed, pending)
    judged = [
        _renamed(committed, now, name, pending[name], convertible)
        if name in pending and name not in reasons and committed is not None
        else _store(committed, now, name, reasons.get(name), name in unlogged, convertible)
        for name in now.stores
    ]
    followed = [Decision(name, Verdict.KEPT, "it follows its topic, whatever the last topology was") for name in global_stores]
    if committed is None:
        return (*judged, *followed)
    left = sorted((committed.stores.keys() - set(committed.gone) | reasons.keys()) - now.stores.keys())
    others = [Decision(name, Verdict.REFUSED, reasons[name]) if name in reasons else _lost(committed, now, name) for name in left]
    return (*judged, *followed, *others)


def source_changes(
    read_now: Mapping[str, SourceNode],
    committed: Collection[str],
    read_before: Collection[str],
    *,
    resumed: Mapping[str, int] = MappingProxyType({}),
    added: Collection[tuple[str, int]] = (),
    lost: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Decision, ...]:
    """Return the verdict on each source topic: those read now, and those with offsets that the committed topology read.

    `resumed` are topics that the last commit did not cover, with the epoch that did; `added` are partitions created after it;
    `lost` says which records of a topic are gone and skipped.
    """
    now = []
    for topic, node in sorted(read_now.items()):
        new = sorted(partition for name, partition in added if name == topic)
        change = _known_source(topic, resumed.get(topic), new) if topic in committed else _new_source(topic, node, bool(new))
        now.append(replace(change, why=f"{change.why}; {lost[topic]}") if topic in lost else change)
    dropped = [
        Decision(topic, Verdict.DROPPED, "its offsets are kept: a later topology that reads it resumes from them")
        for topic in sorted(set(committed) & set(read_before) - read_now.keys())
    ]
    return (*now, *dropped)


def _store(
    committed: TopologyFacts | None,
    now: TopologyFacts,
    name: str,
    refusal: str | None,
    is_unlogged: bool,
    convertible: Collection[str],
) -> Decision:
    if refusal is not None:
        return Decision(name, Verdict.REFUSED, refusal)
    if committed is not None and name in migrations(committed, now, convertible):
        return Decision(name, Verdict.MIGRATED, "every value is converted by migrate= before records are processed")
    if committed is None or name not in committed.stores:
        return Decision(name, Verdict.NEW, "starts empty: records that were already read are not read again")
    if is_unlogged:
        return Decision(
            name, Verdict.KEPT, "it has no changelog: kept only if the files in state_dir are as the last run left them"
        )
    if name in committed.gone:
        return Decision(name, Verdict.REBUILT, "restored from its changelog as of its removal; updates since then are missing")
    if _BY_POSITION.search(name) and committed.fingerprint != now.fingerprint:
        return Decision(
            name, Verdict.KEPT, "its generated name contains a node number: check that it is the same store, and give it a name"
        )
    return Decision(name, Verdict.KEPT, "as committed")


def _renamed(committed: TopologyFacts, now: TopologyFacts, name: str, old: str, convertible: Collection[str]) -> Decision:
    converted = ", and then converted by migrate=" if name in migrations(committed, now, convertible) else ""
    why = f"the content of {old!r} is copied{converted}, before records are processed; the changelog of {old!r} is kept"
    return Decision(name, Verdict.RENAMED, why)


def _lost(committed: TopologyFacts, now: TopologyFacts, name: str) -> Decision:
    layout = committed.stores[name]
    alike = [new for new in now.stores if new not in committed.stores and now.stores[new] == layout]
    hint = (
        f"; the new store {alike[0]!r} has the same layout: if it is the same store, declare it with renamed_from={name!r}"
        if len(alike) == 1
        else ""
    )
    return Decision(name, Verdict.LOST, f"its changelog is kept but no longer read{hint}")


def _known_source(topic: str, left_at: int | None, new: Sequence[int]) -> Decision:
    begun = f"; new partitions start at their earliest record: {', '.join(map(str, new))}" if new else ""
    if left_at is not None:
        return Decision(
            topic, Verdict.KEPT, f"resumes where it stopped at epoch {left_at}: the last topology did not read it{begun}"
        )
    return Decision(topic, Verdict.KEPT, f"resumes from the committed offsets{begun}")


def _new_source(topic: str, node: SourceNode, came_since: bool) -> Decision:
    if came_since:
        return Decision(topic, Verdict.NEW, "created after the last commit: starts at its earliest record")
    if node.reset == "none":
        return Decision(topic, Verdict.REFUSED, f"it has no committed offset, and its source has reset='none' ({node.line})")
    if node.reset in (None, "earliest"):
        return Decision(topic, Verdict.NEW, "starts at its earliest record")
    if node.reset == "latest":
        return Decision(topic, Verdict.NEW, "starts at its end: existing records are not read")
    return Decision(topic, Verdict.NEW, f"starts {node.reset} ms before now")
