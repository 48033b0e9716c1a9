"""Whether state that was committed under one topology can be used under another, and why not.

A topology may grow: new sources, sinks, branches and stores. A store that keeps its name must keep its layout, or its changelog
would be misread; and its records must still be routed by the same kind of key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

import msgspec

from penstock.errors import StateError
from penstock.state import StoreSpec
from penstock.topology import SourceNode, Topology
from penstock.topology.plan.layouts import FIELDS, UNLOGGED, layout, missing_fields


class TopologyFacts(msgspec.Struct, frozen=True):
    """What committed state depends on, stored together with it; of `stores`, those in `gone` are no longer in use.

    `sources` are the topics and patterns that are read in epochs; `incarnation` is the one that wrote these facts, with its
    first commit: all its commits cover exactly these sources ("": unknown). `topic_ids` are the ids of the changelog topics, by
    name: a topic that was created again has another id. `restoring` is the savepoint that is being restored, if one is: the
    changelogs are not complete then.
    """

    fingerprint: str
    stores: dict[str, dict[str, str]]
    sources: list[str]
    version: int = 1
    gone: list[str] = []
    incarnation: str = ""
    topic_ids: dict[str, str] = {}
    restoring: str = ""


VERSION, MIGRATING, RENAMING = "version", "migrating", "renaming"
"""Of a store's layout: the version of its values, the one they are being converted to, the store they are being copied from."""

_CONVERTED = frozenset({"value", FIELDS, "aggregates", VERSION, MIGRATING, UNLOGGED})
"""What a migration may change, and its traces."""

_decode = msgspec.json.Decoder(TopologyFacts).decode


def facts(topology: Topology, fingerprint: str, incarnation: str = "") -> TopologyFacts:
    """Return the facts of a topology, for one incarnation."""
    stores = {name: layout(spec) for name, spec in topology.stores.items() if name not in topology.global_stores}
    followed = set(topology.global_stores.values())  # topics of global tables are not part of epochs
    topics = [
        topic
        for node in topology.nodes.values()
        if isinstance(node, SourceNode) and not node.internal and node.schedule is None and node.name not in followed
        for topic in node.topics or (node.pattern.pattern if node.pattern else "",)
    ]
    return TopologyFacts(fingerprint, stores, sorted(topics), incarnation=incarnation)


def convertible(stores: Mapping[str, StoreSpec]) -> frozenset[str]:
    """Return the stores whose values of the version before can be converted."""
    return frozenset(name for name, spec in stores.items() if spec.migration is not None)


def remembered(committed: TopologyFacts | None, now: TopologyFacts) -> TopologyFacts:
    """Return the facts to store: with removed stores, because their changelogs are read if they are added again."""
    if committed is None:
        return now
    gone = sorted(committed.stores.keys() - now.stores.keys())
    topic_ids = {**committed.topic_ids, **now.topic_ids}
    return msgspec.structs.replace(now, stores={**committed.stores, **now.stores}, gone=gone, topic_ids=topic_ids)


def encode_facts(found: TopologyFacts) -> bytes:
    """Serialize facts."""
    return msgspec.json.encode(found)


def decode_facts(data: bytes) -> TopologyFacts:
    """Deserialize facts."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StateError(
            f"This version cannot read the topology facts in the lanes' topic ({error}). Reset the application."
        ) from None


def refused_stores(
    committed: TopologyFacts, now: TopologyFacts, can: Collection[str], declared: Mapping[str, str]
) -> dict[str, str]:
    """Return the stores whose committed state cannot be used, with the reason.

    Values of the stores `can` can be converted; `declared` are the stores that take over another one's content.
    """
    pending = renames(committed, now, declared)
    after = renamed(committed, pending)
    changes = {name: layout_change(after, now, name, can) for name in now.stores}
    return {name: change for name, change in changes.items() if change is not None} | _refused_renames(committed, now, pending)


def incompatibilities(
    committed: TopologyFacts, now: TopologyFacts, can: Collection[str] = (), declared: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the reasons why committed state cannot be used, one line each; see `refused_stores`."""
    return [f"store {name!r}: {why}" for name, why in refused_stores(committed, now, can, declared).items()]


# ---- stores with another name -----------------------------------------------------------------------------------------


def renamed_stores(stores: Mapping[str, StoreSpec]) -> dict[str, str]:
    """Return the stores that take over the content of another one, with its name."""
    return {name: spec.renamed_from for name, spec in stores.items() if spec.renamed_from is not None}


def renames(committed: TopologyFacts | None, now: TopologyFacts, declared: Mapping[str, str]) -> dict[str, str]:
    """Return those of the `declared` stores whose content is still to be copied: they have none of their own yet."""
    known = {} if committed is None else committed.stores
    return {
        name: old
        for name, old in declared.items()
        if name in now.stores and old in known and (name not in known or known[name].get(RENAMING) == old)
    }


def renaming(committed: TopologyFacts, pending: Mapping[str, str]) -> TopologyFacts:
    """Return the committed facts with a note that these stores are partly copied: no other version may use them."""
    marked = {name: {**committed.stores[old], RENAMING: old} for name, old in pending.items()}
    return msgspec.structs.replace(committed, stores={**committed.stores, **marked})


def renamed(committed: TopologyFacts, pending: Mapping[str, str]) -> TopologyFacts:
    """Return the committed facts as they are when these stores are copied: the old ones are no longer in use."""
    copied = {name: committed.stores[old] for name, old in pending.items()}
    gone = sorted({*committed.gone, *pending.values()})
    return msgspec.structs.replace(committed, stores={**committed.stores, **copied}, gone=gone)


def _refused_renames(committed: TopologyFacts, now: TopologyFacts, pending: Mapping[str, str]) -> dict[str, str]:
    refused = {
        name: f"its content is being copied from {layout[RENAMING]!r}, which is not complete: start the application that began it"
        for name, layout in committed.stores.items()
        if RENAMING in layout and name not in pending
    }
    for name, old in pending.items():
        if old in now.stores:
            refused[name] = f"it is renamed from {old!r}, which the topology still has: remove renamed_from=, or that store"
        elif UNLOGGED in committed.stores[old] or UNLOGGED in now.stores[name]:
            refused[name] = f"it is renamed from {old!r}, but content is copied by changelogs, and one of them has none"
    return refused


# ---- values of another version ----------------------------------------------------------------------------------------


def migrating(committed: TopologyFacts, stores: Iterable[str], now: TopologyFacts) -> TopologyFacts:
    """Return the committed facts with a note that these stores are partly converted: no other version may use them."""
    marked = {name: {**committed.stores[name], MIGRATING: _version(now.stores[name])} for name in stores}
    return msgspec.structs.replace(committed, stores={**committed.stores, **marked})


def migrations(committed: TopologyFacts | None, now: TopologyFacts, can: Collection[str]) -> list[str]:
    """Return the stores whose values have to be converted; `can` are those that can be."""
    return [] if committed is None else [name for name in now.stores if name in can and _is_next(committed, now, name)]


def _is_next(committed: TopologyFacts, now: TopologyFacts, store: str) -> bool:
    """Whether a store differs from the committed one by its values only, and has the next version."""
    before, after = committed.stores.get(store), now.stores[store]
    version = _version(after)
    if before is None or int(version) != int(_version(before)) + 1 or before.get(MIGRATING, version) != version:
        return False
    return _unconverted(before) == _unconverted(after)


def _unconverted(layout: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a layout that a migration does not change."""
    return {what: text for what, text in layout.items() if what not in _CONVERTED}


def _version(layout: Mapping[str, str]) -> str:
    return layout.get(VERSION, "1")


def layout_change(committed: TopologyFacts, now: TopologyFacts, store: str, can: Collection[str] = ()) -> str | None:
    """Return how the layout of a store has changed; None if it has not, if values can be converted, or if the store is new."""
    before, after = committed.stores.get(store), now.stores[store]
    if before is None or before == after or (store in can and _is_next(committed, now, store)):
        return None
    if MIGRATING in before:
        return f"its migration to version {before[MIGRATING]} is not complete: start the application that began it"
    if _version(before) != _version(after):
        return _version_change(int(_version(before)), int(_version(after)), store in can)
    if UNLOGGED in before and UNLOGGED not in after:
        return (
            "it had no changelog and now has one: its content was never logged, and an older changelog of that name would "
            "restore outdated content"
        )
    different = [what for what in sorted({*before, *after} - {UNLOGGED, FIELDS}) if before.get(what) != after.get(what)]
    if not different:
        missing = missing_fields(before.get(FIELDS), after.get(FIELDS))
        cure = "give them defaults, or convert old values with version= and migrate="
        return f"its values do not have the new fields {', '.join(missing)}: {cure}" if missing else None
    return "; ".join(f"{what} was {before.get(what, 'none')} and is {after.get(what, 'none')}" for what in different)


def _version_change(before: int, after: int, can_migrate: bool) -> str:
    if after < before:
        return f"its values are of version {before} and cannot become version {after} again"
    if after > before + 1:
        return f"its values are of version {before}: start version {before + 1} first, which converts them"
    if not can_migrate:
        return f"its values are of version {before}: say with migrate= how they become version {after}"
    return f"version {after} changes more than values: kind, windows, retention and keys must stay as they are"
