"""Whether state that was committed under one topology can be used under another, and why not.

A topology may grow: new sources, sinks, branches and stores. A store that keeps its name must keep its layout, or its changelog
would be misread; and its records must still be routed by the same kind of key.
"""

from __future__ import annotations

import msgspec

from penstock.errors import StateError
from penstock.plan.layouts import UNLOGGED, layout
from penstock.topology import SourceNode, Topology


class TopologyFacts(msgspec.Struct, frozen=True):
    """What committed state depends on, stored together with it; of `stores`, those in `gone` are no longer in use.

    `sources` are the topics and patterns that are read in epochs; `incarnation` is the one that wrote these facts, with its
    first commit: all its commits cover exactly these sources ("": unknown). `topic_ids` are the ids of the changelog topics, by
    name: a topic that was created again has another id.
    """

    fingerprint: str
    stores: dict[str, dict[str, str]]
    sources: list[str]
    version: int = 1
    gone: list[str] = []
    incarnation: str = ""
    topic_ids: dict[str, str] = {}


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


def incompatibilities(committed: TopologyFacts, now: TopologyFacts) -> list[str]:
    """Return the reasons why committed state cannot be used, one line each."""
    changes = {name: layout_change(committed, now, name) for name in now.stores}
    return [f"store {name!r}: {change}" for name, change in changes.items() if change is not None]


def layout_change(committed: TopologyFacts, now: TopologyFacts, store: str) -> str | None:
    """Return how the layout of a store has changed; None if it has not, or if the store is new."""
    before, after = committed.stores.get(store), now.stores[store]
    if before is None or before == after:
        return None
    if UNLOGGED in before and UNLOGGED not in after:
        return (
            "it had no changelog and now has one: its content was never logged, and an older changelog of that name would "
            "restore outdated content"
        )
    different = [what for what in sorted({*before, *after} - {UNLOGGED}) if before.get(what) != after.get(what)]
    if not different:
        return None
    return "; ".join(f"{what} was {before.get(what, 'none')} and is {after.get(what, 'none')}" for what in different)
