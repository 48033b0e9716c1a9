"""Seeded composition of cases for the epoch host: those of the generator of `conformance`, and more.

Added are: several source partitions, JSON keys that producers encode in several ways, records whose key was removed, processors
that write arbitrary keys, large values; and a course of cuts, starts and rollbacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from verification.conformance import generator, topologies
from verification.conformance.aggregations import windowed_key, windows
from verification.conformance.draft import Draft, Handle
from verification.conformance.epochs.drafts import IN_TURN, OF_LIFE, WAITING, EpochDraft
from verification.conformance.epochs.library import OWN_KEYS
from verification.conformance.epochs.router import SPELLINGS
from verification.conformance.epochs.spec import Cut, EpochCase, Input, Restart
from verification.conformance.inputs import Script
from verification.conformance.spec import Args, Op, Pipe, Settings, Step, durations

LARGE = 100_000
"""The approximate size of a large value in bytes."""


AGGREGATES = "aggregates"
"""The focus of cases with ready aggregates, which are always cached, because columns need a cache."""

OFTEN = 4
"""Of so many cases, the last one is about them, and the second one about the life of an application."""

SPLITTING = {"table_join_foreign", "cogrouped_cogroup", "stream_join_stream", "stream_merge"}
"""Verbs with which a record may reach one store in several stages."""


def _with_store(draft: Draft, fn: str, value: str) -> None:
    """A processor that writes arbitrary keys."""
    source = draft.some_stream(plain=True)
    store = draft.fresh("store")
    draft.add("builder_add_state_store", (), name=store, kind="key_value", key="string", value=value)
    result = Handle("", "stream", source.key)
    draft.step("stream_process", (source,), result, fn=fn, uses=store, stores=[store], name=draft.name())


def _without_key(draft: Draft) -> None:
    """A stream whose records lose their key, before stateful processors."""
    source = draft.some_stream()
    keyless = replace(source, key="string", key_known=False, windows=None)
    draft.step("stream_select_key", (source,), keyless, fn="none", name=draft.name())
    _with_store(draft, draft.choice(OWN_KEYS), "long")


def _json_stream(draft: Draft) -> None:
    """A stream with JSON keys."""
    draft.new_stream("json")


def _json_tables(draft: Draft) -> None:
    """Two tables with JSON keys, joined: on their key, or the left one on a foreign key."""
    left, right = draft.new_table("json"), draft.new_table("string" if draft.chance(0.5) else "json")
    foreign = right.key == "string"
    draft.step(
        "table_join_foreign" if foreign else "table_join_table",
        (left, right),
        Handle("", "table", "json", key_known=left.key_known),
        kind=draft.choice(("inner", "left")),
        fn="pair",
        on="fk_head" if foreign else None,
        store={"name": draft.fresh("store"), "key": "json", "value": "string"},
    )


def _aggregates(draft: Draft) -> None:
    """Ready aggregates of a stream that nothing else reads, so that lanes may compute them in columns."""
    key, value = draft.choice(("string", "string", "long")), draft.choice(("long", "double", "string", "json"))
    known = Handle("", "stream", key, value, key_known=True, value_known=True)
    source = replace(known, id=draft.add("builder_stream", (), topic=draft.topic(key, value), key=key, value=value))
    grouped = replace(known, kind="grouped", id=draft.add("stream_group_by_key", (source,)))
    functions = {"json": ("all", "all"), "string": ("all", "count", "min", "max", "first", "last")}
    own = functions.get(value, ("all", "count", "sum", "sum", "min", "max", "first", "last"))
    given: Args = {"store": {"name": draft.fresh("store")}}
    how = draft.choice(("agg", "agg", "count"))
    if how == "agg":
        given["fields"] = {f"f{number}": draft.choice(own) for number in range(draft.choice((1, 2, 3)))}
    result = Handle("", "table", key, "json" if how == "agg" else "long", key_known=True)
    if draft.chance(0.5):
        draft.step(f"grouped_{how}", (grouped,), result, **given)
        return
    spec = windows(draft, draft.choice(("tumbling", "hopping")))
    by = replace(grouped, id=draft.add("grouped_windowed_by", (grouped,), windows=spec))
    draft.step(f"windowed_{how}", (by,), replace(result, key=windowed_key(key, spec), windows=spec), **given)


EXTRA: dict[str, generator.Operator] = {
    **{f"own_keys_{kind}": partial(_with_store, fn=kind, value="long") for kind in OWN_KEYS},
    "latest": partial(_with_store, fn="latest", value="string"),
    "without_key": _without_key,
    "json_stream": _json_stream,
    "json_tables": _json_tables,
    **OF_LIFE,
}
OPERATORS = {**generator.OPERATORS, **EXTRA}
FOCI = (*(focus for focus in generator.FOCI if focus != "sink:print"), *EXTRA, *EXTRA)


def generate(seed: int, count: int) -> Iterator[EpochCase]:
    """The first `count` cases of a seed."""
    for index in range(count):
        yield case(seed, index)


def case(seed: int, index: int) -> EpochCase:
    """One case of a seed."""
    dice = Random(f"epochs/{seed}/{index}")
    focus = _focus(index)
    draft = EpochDraft(dice)
    kind = "topology" if focus.startswith("topology:") else "dsl"
    if kind == "topology":
        topologies.compose(draft, focus.removeprefix("topology:"))
    else:
        generator.compose(draft, focus, {**OPERATORS, focus: _aggregates} if focus == AGGREGATES else OPERATORS)
    shards = dice.choice((1, 2, 2, 3, 4, 5, 8))
    in_flight = Random(f"in flight/{seed}/{index}").choice((0, 1, 2))
    columns = focus == AGGREGATES or Random(f"expressions/columns/{seed}/{index}").random() < 0.5
    drafted = EpochCase(
        f"{seed}/{index}", tuple(draft.ops), (), draft.topics, kind, shards=shards, in_flight=in_flight, columns=columns
    )
    drafted = replace(drafted, threads=Random(f"threads/{seed}/{index}").choice((1, 1, 2, 3, 8)))
    settings = Settings(caching=draft.chance(_caches(focus)), wall_clock=dice.choice((0, 0, 1_000, 86_400_000)))
    course = Course(dice, drafted, draft, eventful=focus in OF_LIFE)
    steps = course.steps()
    if focus == AGGREGATES:
        steps = (*steps, *_late(drafted, steps))
    ops = drafted.ops
    if any(isinstance(step, Restart) for step in steps):
        ops = tuple(map(_logged, ops))
    return replace(drafted, ops=ops, steps=steps, settings=settings, lanes=course.first_lanes, failures=draft.failures)


def _caches(focus: str) -> float:
    """How many cases about something have record caches: only with them are values held that a function may change."""
    if focus == AGGREGATES:
        return 1
    return 0.8 if focus.startswith("mutating") else 0.25


def _focus(index: int) -> str:
    """What a case is about: 7919 is prime, so adjacent cases are of different kinds, and a short run covers many."""
    if index % OFTEN == OFTEN - 1:
        return AGGREGATES
    if index % OFTEN == 1:
        return IN_TURN[index // OFTEN * 7919 % len(IN_TURN)]
    return FOCI[index * 7919 % len(FOCI)]


def _late(case: EpochCase, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """A record that closes all windows of its shard, and in the next epoch one that is late for them; nothing without windows.

    By chance, too few cases have records of one shard that are so, on both sides of a cut.
    """
    windows = [op.args["windows"] for op in case.ops if op.verb == "grouped_windowed_by" and "grace" in op.args["windows"]]
    known = [step for step in steps if isinstance(step, Input) and step.key is not None and step.value is not None]
    if not windows or not known:
        return ()
    late = known[-1]
    latest = max(step.at for step in known)
    closing = replace(late, at=latest + 1 + max(2 * each["size"] + each["grace"] for each in windows))
    return closing, Cut(), late


def _logged(op: Op) -> Op:
    """The operation with a changelog for its store: without one, a start may lose the store."""
    store = op.args.get("store", {})
    if "logging" not in store:
        return op
    return replace(op, args={**op.args, "store": {name: value for name, value in store.items() if name != "logging"}})


class Course:
    """Writes the steps of one case: records of several partitions, with cuts, starts and rollbacks between them.

    An `eventful` one has short epochs, and always starts and moves.
    """

    def __init__(self, dice: Random, case: EpochCase, draft: Draft, *, eventful: bool) -> None:
        self._dice = dice
        self._eventful = eventful
        self._failures = Random(f"failures/{case.id}")
        self._case = case
        self._most_lanes = min(8, case.shards)
        self.first_lanes = self._lanes()
        several = dice.random() < 0.5
        self._partitions = {topic: dice.choice((1, 2, 3, 4)) if several else 1 for topic in case.topics}
        self._globals = _global_topics(case)
        self._highest: dict[tuple[str, int], int] = {}
        # Epochs take most of the time: prefer another topology to a longer course. Fewer records if each may need its
        # own epoch.
        self._most_records = 14 if any(op.verb in SPLITTING for op in case.ops) else 24
        self._in_order = dice.random() < 0.9
        self._script = Script(dice, draft.topics, draft.tables, durations(case))

    def steps(self) -> tuple[Step, ...]:
        """All steps."""
        dice = self._dice
        walls = 0.25 if _waits(self._case) else 0.08 if generator.waits_for_the_clock(self._case) else 0.01
        size = dice.choice((3, 4, 6) if self._eventful else (4, 8, 15, 30, 60))
        starts = dice.choice((0.3, 0.5) if self._eventful else (0.0, 0.1, 0.3, 0.5))
        found: list[Step] = []
        for step in self._script.steps(dice.randrange(6, self._most_records), walls=walls, boom=False):
            found.append(self._input(step) if isinstance(step, Pipe) else step)
            if dice.random() < 1 / size:
                found.append(self._restart() if dice.random() < starts else self._cut())
        if starts and dice.random() < 0.5:
            found.append(self._restart())
        return tuple(found)

    def _input(self, pipe: Pipe) -> Input:
        dice = self._dice
        count = 1 if pipe.topic in self._globals else self._partitions[pipe.topic]
        # A producer chooses any partition for a record without a key, and always the same for a key.
        partition = dice.randrange(count) if pipe.key is None else sum(str(pipe.key).encode()) % count
        at = pipe.at
        if self._in_order and len(self._case.topics) + count > 2:
            at = max(at, self._highest.get((pipe.topic, partition), 0))
            self._highest[pipe.topic, partition] = at
        key_serde, value_serde = self._case.topics[pipe.topic]
        times = 1
        if value_serde in {"string", "bytes"} and pipe.value and dice.random() < 0.004:
            times = LARGE // len(str(pipe.value))
        blanks = dice.randrange(len(SPELLINGS)) if key_serde == "json" else 0
        return Input(pipe.topic, pipe.key, pipe.value, at, pipe.headers, partition, blanks, times)

    def _lanes(self) -> int:
        return min(self._most_lanes, self._dice.choice((1, 1, 2, 2, 3, 4, 5, 8)))

    def _cut(self) -> Cut:
        dice = self._dice
        again = dice.choice(("same", "more")) if dice.random() < (0.3 if self._eventful else 0.2) else ""
        mark, compact, copy = dice.random() < 0.2, dice.random() < 0.1, dice.random() < 0.2
        moves = self._eventful and dice.random() < 0.3
        return Cut(again, mark, compact, copy, fails=self._failures.random() < 0.2, moves=moves)

    def _restart(self) -> Restart:
        dice = self._dice
        return Restart(self._lanes(), dice.choice(("kept", "deleted", "older", "ahead", "foreign")), tidy=dice.random() < 0.8)


def _waits(case: EpochCase) -> bool:
    """Whether a processor of the case lives by the wall clock."""
    return any(op.args.get("fn") in WAITING for op in case.ops)


def _global_topics(case: EpochCase) -> set[str]:
    verbs = {"builder_global_table", "builder_add_global_store", "topology_add_global_store"}
    return {op.args["topic"] for op in case.ops if op.verb in verbs}
