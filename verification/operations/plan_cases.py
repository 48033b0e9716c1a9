"""Edits of a topology that has run: what `penstock plan` says about each store and source, and what then happens.

The plan uses the topology's facts; what happens is observed in the stores' files, the changelogs and the group's offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from penstock import App, Store, StreamsBuilder, Topology, tumbling
from penstock.config import Config
from penstock.errors import IncompatibleTopologyError
from penstock.history.rehearsal import rehearse
from penstock.state import EngineFactory, EngineKind, LaneState, StoreKind
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import Changes, Verdict
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.topics import Sent

LANES, SHARDS = 2, 4
TIMEOUT_S = 120.0
BROKER_TIMEOUT = "40s"
"""Shorter, so that an application which waits for a broker ends first, and says for what."""
FAR_FUTURE = 2**62
OLD, BOTH, NEW = "old", "both", "new"
"""Keys that occur before the edit, before and after it, and after it."""

Version = Callable[[str], Topology]


@dataclass(frozen=True)
class Case:
    """An edit: a topology before and after, each made from the prefix of its topics."""

    name: str
    before: Version
    after: Version


@dataclass(frozen=True)
class Result:
    """What the plan said about each store and source, and what happened to it."""

    case: Case
    plan: Changes
    said: Mapping[str, Verdict]
    happened: Mapping[str, Verdict]

    @property
    def is_right(self) -> bool:
        """Whether they are the same."""
        return dict(self.said) == dict(self.happened)


# ---- the edits --------------------------------------------------------------------------------------------------------


def counting(prefix: str) -> Topology:
    """A store with a name, and one without."""
    builder = StreamsBuilder()
    records = builder.stream(f"{prefix}-left", value=str)
    records.group_by_key().count(store="counts")
    records.group_by_key().reduce(lambda _, new: new)
    return builder.build()


def with_a_branch(prefix: str) -> Topology:
    """The branch comes first: the unnamed store gets another number."""
    builder = StreamsBuilder()
    records = builder.stream(f"{prefix}-left", value=str)
    records.filter(lambda key, _: key != "nobody").group_by_key().count(store="branch")
    records.group_by_key().count(store="counts")
    records.group_by_key().reduce(lambda _, new: new)
    return builder.build()


def counting_into(store: str) -> Version:
    """One store of this name."""

    def version(prefix: str) -> Topology:
        builder = StreamsBuilder()
        builder.stream(f"{prefix}-left", value=str).group_by_key().count(store=store)
        return builder.build()

    return version


def renamed_into(store: str, before: str) -> Version:
    """One store of this name, which was another one before."""

    def version(prefix: str) -> Topology:
        builder = StreamsBuilder()
        builder.stream(f"{prefix}-left", value=str).group_by_key().count(store=Store(store, renamed_from=before))
        return builder.build()

    return version


def windowed(size: str) -> Version:
    """Windows of this size, and another store."""

    def version(prefix: str) -> Topology:
        builder = StreamsBuilder()
        records = builder.stream(f"{prefix}-left", value=str)
        records.group_by_key().windowed_by(tumbling(size, grace="0s")).count(store="windows")
        records.group_by_key().count(store="counts")
        return builder.build()

    return version


def table_of(value: type) -> Version:
    """A table with values of this type, and another store."""

    def version(prefix: str) -> Topology:
        builder = StreamsBuilder()
        builder.table(f"{prefix}-right", value=value, store="table")
        builder.stream(f"{prefix}-left", value=str).group_by_key().count(store="counts")
        return builder.build()

    return version


def joined(prefix: str) -> Topology:
    """A join of two streams, and another store."""
    builder = StreamsBuilder()
    left = builder.stream(f"{prefix}-left", value=str)
    right = builder.stream(f"{prefix}-right", value=str)
    left.group_by_key().count(store="counts")
    left.join(right, lambda one, other: f"{one} {other}", within="10m", grace="0s").to(f"{prefix}-out", value=str)
    return builder.build()


@dataclass(frozen=True)
class Total:
    """A value with a field."""

    n: int = 0


def _with_note() -> type:
    """The same type after an edit: with another field, which has a default."""

    @dataclass(frozen=True)
    class Total:
        n: int = 0
        note: str = ""

    return _renamed(Total)


def _with_required_note() -> type:
    """The same with a field that every value must have."""

    @dataclass(frozen=True)
    class Total:
        note: str
        n: int = 0

    return _renamed(Total)


def _renamed(kind: type) -> type:
    """A type by the name that it would have if the edit had been made in place."""
    kind.__qualname__, kind.__module__ = Total.__qualname__, Total.__module__
    return kind


def totals(
    value: Any = Total, version: int = 1, *, migrates: bool = False, key: Any = str, renamed_from: str | None = None
) -> Version:
    """Totals of this type and version, and another store; under another name if they are renamed."""

    def version_of(prefix: str) -> Topology:
        builder = StreamsBuilder()
        records = builder.stream(f"{prefix}-left", value=str)
        initial = {field.name: "" for field in fields(value) if field.name == "note"}
        name, migrate = "totals" if renamed_from is None else "amounts", converted if migrates else None
        store = Store(name, value=value, version=version, old=Total, migrate=migrate, renamed_from=renamed_from)
        grouped = records.group_by_key() if key is str else records.group_by(lambda key, _: len(key), key=key)
        grouped.aggregate(lambda: value(**initial), lambda _, record, total: replace(total, n=total.n + 1), store=store)
        records.group_by_key().count(store="counts")
        return builder.build()

    return version_of


CONVERTED = 1_000


def converted(total: Total) -> Total:
    """A value of the next version: converted twice it would be another one."""
    return Total(total.n + CONVERTED)


def windowed_for(retention: str) -> Version:
    """Windows that are kept for this long, and another store."""

    def version(prefix: str) -> Topology:
        builder = StreamsBuilder()
        records = builder.stream(f"{prefix}-left", value=str)
        kept = Store("windows", retention=retention)
        records.group_by_key().windowed_by(tumbling("1m", grace="0s")).count(store=kept)
        records.group_by_key().count(store="counts")
        return builder.build()

    return version


CASES = (
    Case("added-branch", counting, with_a_branch),
    Case("renamed-store", counting_into("counts"), counting_into("totals")),
    Case("renamed-with-content", counting_into("counts"), renamed_into("totals", "counts")),
    Case("changed-window", windowed("1m"), windowed("5m")),
    Case("changed-serde", table_of(str), table_of(dict)),
    Case("removed-join", joined, counting_into("counts")),
    Case("migrated-values", totals(), totals(version=2, migrates=True)),
    Case("renamed-and-migrated", totals(), totals(version=2, migrates=True, renamed_from="totals")),
    Case("version-without-migration", totals(), totals(version=2)),
    Case("skipped-version", totals(), totals(version=3, migrates=True)),
    Case("changed-key", totals(), totals(key=int)),
    Case("changed-retention", windowed_for("1h"), windowed_for("2h")),
    Case("added-field", totals(), totals(_with_note())),
    Case("added-required-field", totals(), totals(_with_required_note())),
)


# ---- what is done, and what is seen -----------------------------------------------------------------------------------


def run(broker: Broker, directory: Path) -> tuple[int, int]:
    """The number of cases in which the plan was right, and of all cases; print those in which it was wrong."""
    results = [run_case(case, broker.bootstrap_servers, directory) for case in CASES]
    for result in results:
        if not result.is_right:
            print(f"{result.case.name}: said {dict(result.said)}, happened {dict(result.happened)}")
    return sum(result.is_right for result in results), len(results)


def run_case(case: Case, bootstrap_servers: str, directory: Path) -> Result:
    """Run the first version, make the plan for the second, run that, and observe."""
    prefix = f"{case.name}-{time.time_ns():x}"
    for topic in ("left", "right", "out"):
        topics.create(bootstrap_servers, f"{prefix}-{topic}", partitions=2)
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "broker_timeout": BROKER_TIMEOUT,
        "engine": "local",  # what a start does to stores and offsets is the same on Spark, which takes longer
        "lanes": LANES,
        "shards": SHARDS,
        "state_dir": directory,
        "admin_address": "off",
    }
    first, second = App(prefix, case.before(prefix)), App(prefix, case.after(prefix))
    _send(bootstrap_servers, prefix, [OLD, OLD, OLD, BOTH, BOTH])
    _run(first, settings)
    plan = rehearse(prefix, second.topology, second.error_handlers, Config.load(environment={}, **settings))
    before = Look.at(bootstrap_servers, directory, first, second)
    _send(bootstrap_servers, prefix, [BOTH, NEW])
    refusal = ""
    try:
        _run(second, settings)
    except IncompatibleTopologyError as error:
        refusal = str(error)
    after = (
        Look.at(bootstrap_servers, directory, first, second) if refusal else Look.at(bootstrap_servers, directory, second, first)
    )
    said = {change.name: change.verdict for change in (*plan.stores, *plan.sources)}
    if refusal:  # then the plan lists only what is refused, and nothing may have changed
        said = {name: verdict for name, verdict in said.items() if verdict is Verdict.REFUSED}
        happened = {name: Verdict.REFUSED for name in second.topology.stores if f"store {name!r}:" in refusal}
        if before.moved(after):
            happened["everything else"] = Verdict.LOST
    else:
        happened = {**_stores(first, second, before, after), **_sources(before, after)}
    return Result(case, plan, said, happened)


def _run(app: App, settings: Mapping[str, Any]) -> None:
    with app.start(until="latest", **settings) as running:
        assert running.wait(TIMEOUT_S), f"{app.application_id} has not ended within {TIMEOUT_S} s"


def _send(bootstrap_servers: str, prefix: str, keys: list[str]) -> None:
    for side in ("left", "right"):
        topics.produce(bootstrap_servers, f"{prefix}-{side}", [Sent(key=key.encode(), value=b"value") for key in keys])


@dataclass(frozen=True)
class Look:
    """A moment's state: the stores' content on disk, the ends of the changelogs, and the group's offsets."""

    contents: Mapping[str, Mapping[str, Any]]
    changelogs: Mapping[str, Mapping[int, int]]
    offsets: Mapping[str, int]

    @classmethod
    def at(cls, bootstrap_servers: str, directory: Path, app: App, other: App) -> Look:
        """Observe an application, and the changelogs of another version of it."""
        logs = {store: changelog_topic(app.application_id, store) for store in (*app.topology.stores, *other.topology.stores)}
        there = topics.names(bootstrap_servers)
        ends = {store: topics.end_offsets(bootstrap_servers, log) for store, log in logs.items() if log in there}
        offsets: dict[str, int] = {}
        for (topic, _), (offset, _) in topics.group_offsets(bootstrap_servers, app.application_id).items():
            offsets[topic] = offsets.get(topic, 0) + offset
        return cls(_contents(directory, app), ends, offsets)

    def moved(self, later: Look) -> bool:
        """Whether anything that existed has changed."""
        kept = {store: later.changelogs.get(store) for store in self.changelogs}
        return (kept, later.offsets, later.contents) != (self.changelogs, self.offsets, self.contents)


def _contents(directory: Path, app: App) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {store: {} for store in app.topology.stores}
    for lane in sorted((directory / app.application_id).glob("lanes-*/[0-9][0-9][0-9][0-9]")):
        with closing(LaneState(EngineFactory(EngineKind.LMDB, str(lane)).open(read_only=True))) as state:
            for shard in map(state.shard, range(SHARDS)):
                for name, spec in app.topology.stores.items():
                    store = shard.store(spec)
                    if spec.kind in {StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED}:
                        found[name].update(store.items())
                    else:
                        found[name].update({at.key: value for at, value in store.fetch_all(0, FAR_FUTURE)})
    return found


def _stores(first: App, second: App, before: Look, after: Look) -> dict[str, Verdict]:
    """The fate of each store: its content is still there, it is gone, or its changelog was not touched."""
    happened: dict[str, Verdict] = {}
    renamed = {name: spec.renamed_from for name, spec in second.topology.stores.items() if spec.renamed_from is not None}
    for name, spec in second.topology.stores.items():
        content = after.contents[name]
        assert NEW in content, f"{name} has none of the last records: {content}"
        old = before.contents.get(renamed.get(name, name), {}).get(OLD)
        if OLD in content and _is_same(content[OLD], old):
            happened[name] = Verdict.RENAMED if name in renamed and spec.migration is None else Verdict.KEPT
        elif OLD in content and isinstance(old, Total) and content[OLD] == converted(old):
            happened[name] = Verdict.RENAMED if name in renamed else Verdict.MIGRATED
        elif OLD not in content:
            happened[name] = Verdict.NEW
    for name in first.topology.stores.keys() - second.topology.stores.keys() - set(renamed.values()):
        if before.changelogs[name] == after.changelogs[name]:
            happened[name] = Verdict.LOST
    return happened


def _is_same(now: Any, before: Any) -> bool:
    """Whether a value is the same, if need be with more fields."""
    return bool(now == before) or (isinstance(before, Total) and vars(before).items() <= vars(now).items())


def _sources(before: Look, after: Look) -> dict[str, Verdict]:
    happened = {}
    for topic, offset in after.offsets.items():
        if topic not in before.offsets:
            happened[topic] = Verdict.NEW
        else:
            happened[topic] = Verdict.DROPPED if offset == before.offsets[topic] else Verdict.KEPT
    return happened
