"""`python -m verification.integration.generated`: the epoch oracle's generated topologies as applications.

`conformance epochs` runs them in one process. Here the same topologies and inputs run on the local engine, on Spark or on a
cluster, with a real broker; the judge is the same: one test driver per shard.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from penstock import Topology
from penstock.kafka.producer import EARLIEST_TIMESTAMP
from penstock.topology import SinkNode
from verification.conformance.build import Effects, build
from verification.conformance.coverage import features
from verification.conformance.epochs import generator
from verification.conformance.epochs.course import Feed, Run, course
from verification.conformance.epochs.dsl import EpochDsl
from verification.conformance.epochs.internals import has_scattered_processors, kept_specs, specs_of, ways_of, without_caches
from verification.conformance.epochs.judge import Judge, Judged
from verification.conformance.epochs.library import supplier
from verification.conformance.epochs.living import LIVES
from verification.conformance.epochs.router import Arrived, Partitions, origins_of, spelt
from verification.conformance.epochs.spec import EpochCase, Input, Restart
from verification.conformance.left_out import LeftOut
from verification.conformance.spec import Advance, Op
from verification.integration.campaign import AT_A_TIME
from verification.integration.compare import Difference, differences
from verification.integration.contents import contents_of_all
from verification.integration.cut import Cut
from verification.integration.hosts.application import ApplicationHost, Where
from verification.integration.inputs import SHARDS, partition_of
from verification.integration.scenario import Entry, Fed, Output, Phase, Reading, Result, Scenario, Sent, Setup

EPOCH_RECORDS = 5000
"""More than any input, so that an epoch takes a whole phase."""

PREFIX = re.compile(r"generated-\d+-")
WALL_CLOCK_MS = 1_000_000_000
MOST_STARTS = 3

LEFT_OUT = (
    LeftOut("wall-clock timers", "the clock of an application is the machine's"),
    LeftOut("outer joins of streams, windows that emit on close", "they wait for the clock; make integration compares them"),
    LeftOut("the names of topics in records' metadata", "each application has topics of its own"),
    LeftOut("timestamps of 0 in results", "the producer's library takes 0 for now, so they are sent as 1"),
    LeftOut("processors that run in several stages", "as in conformance-epochs"),
    LeftOut("cases in which a function of the topology fails", "conformance-epochs compares failures"),
    LeftOut("processors whose results show how long they have lived", "only conformance-epochs knows when a lane has moved"),
    LeftOut("rollbacks, older and deleted stores", "make chaos and make cluster kill applications; here they restart"),
)
"""Everything of the epoch oracle's cases that is not compared here."""


class Generated(NamedTuple):
    """A case as a scenario, its input, the expected result, and the lanes of its starts."""

    case: EpochCase
    scenario: Scenario
    phases: Sequence[Phase]
    expected: Result
    lanes: Sequence[int]
    caching: bool


def generated(seed: int, index: int) -> Generated | None:
    """A case of a seed; None if it is left out."""
    drafted = generator.case(seed, index)
    counts = _partitions(drafted)
    case = _settled(drafted, counts)
    if case.failures != "fail" or any(map(_is_left_out, case.ops)):
        return None
    caching = case.settings.caching and not any(ways_of(_topology(case, caching=True)).values())
    topology = _topology(case, caching=caching)
    if has_scattered_processors(topology):
        return None
    try:
        phases, judged, stores = _judged(case, counts, caching)
    except Exception:  # noqa: BLE001 - a function of the topology fails
        return None
    if not phases:
        return None
    outputs = defaultdict[str, list[Judged]](list, {topic: [] for topic in _sinks(topology)})
    for row in sorted(judged, key=lambda row: row.when):  # a stage sends before the next one begins
        outputs[row.sent.topic].append(row)
    partitions = Partitions(topology, case.ops)
    sent = {topic: [_sent(row, partitions) for row in rows] for topic, rows in outputs.items() if rows}
    scenario = Scenario(
        f"generated {case.id}",
        lambda setup: _topology(_prefixed(case, setup), caching=caching),
        lambda *_: phases,
        tuple(Output(topic, how := _reading(rows), how) for topic, rows in outputs.items()),
    )
    starts = [step.lanes for step in case.steps if isinstance(step, Restart)]
    return Generated(case, scenario, phases, Result(sent, {"stores": stores}), (case.lanes, *starts)[:MOST_STARTS], caching)


def _sent(row: Judged, partitions: Partitions) -> Sent:
    topic, key, value, timestamp, headers, partition = row.sent
    chosen = None if partitions.are_by_key(topic) else partition
    return Sent(key, value, max(timestamp, EARLIEST_TIMESTAMP), headers, chosen)


def _is_left_out(op: Op) -> bool:
    args = op.args
    is_outer = op.verb == "stream_join_stream" and args.get("kind") != "inner"
    return is_outer or args.get("emit") == "close" or args.get("fn") in {"wall_timer", "metadata", *LIVES}


def _partitions(case: EpochCase) -> dict[str, int]:
    """The number of partitions of each input topic."""
    inputs = [step for step in case.steps if isinstance(step, Input)]
    return {topic: 1 + max((step.partition for step in inputs if step.topic == topic), default=0) for topic in case.topics}


def _settled(case: EpochCase, counts: Mapping[str, int]) -> EpochCase:
    """The case without the clock, with changelogs for all stores, read from the beginning; partitions follow the keys' bytes."""
    ops = tuple(replace(op, args=_kept(op.args)) for op in case.ops)

    def placed(step: Input) -> Input:
        key = spelt(case.topics[step.topic][0], step)
        return replace(step, partition=partition_of(key, counts[step.topic]), at=step.at + 1)  # to producers, 0 means now

    steps = [placed(step) if isinstance(step, Input) else step for step in case.steps if not isinstance(step, Advance)]
    return replace(case, ops=ops, steps=tuple(steps), shards=SHARDS)


def _kept(args: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in args.items() if name != "reset"}
    if "store" in kept:
        kept["store"] = {name: value for name, value in kept["store"].items() if name != "logging"}
    return kept


def _topology(case: EpochCase, *, caching: bool, is_judge: bool = False) -> Topology:
    topology = build(case, Effects(Path(tempfile.gettempdir())), supplier, partial(EpochDsl, is_judge=is_judge))
    return topology if caching else without_caches(topology)


def _prefixed(case: EpochCase, setup: Setup) -> EpochCase:
    """The case with the topics of a run."""

    def own(name: str, value: Any) -> Any:
        if name == "topics":
            return [setup.topic(topic) for topic in value]
        return setup.topic(value) if name in {"topic", "pattern"} else value

    ops = [replace(op, args={name: own(name, value) for name, value in op.args.items()}) for op in case.ops]
    return replace(case, ops=tuple(ops))


def _judged(
    case: EpochCase, counts: Mapping[str, int], caching: bool
) -> tuple[list[Phase], list[Judged], dict[str, list[Entry]]]:
    """The input in phases of one epoch each, and what the judge makes of it; `counts` are the partitions of topics."""
    topology = _topology(case, caching=caching, is_judge=True)
    specs = specs_of(topology, caching=caching)
    origins = origins_of(case.steps)
    judge = Judge(case, topology, specs, WALL_CLOCK_MS)
    phases: list[Phase] = []
    waiting: list[Arrived] = []
    try:
        for action in course(case, topology):
            if isinstance(action, Feed):
                judge.feed(action.record)
                waiting.append(action.record)
            elif isinstance(action, Run) and action.records:
                judge.epoch(action.records, origins, WALL_CLOCK_MS)
                fed = [_fed(record) for record in (*waiting, *action.records)]
                waiting.clear()
                phases.append(Phase(fed, grows={} if phases else counts, at_once=True))
        stores = contents_of_all(judge.states(), kept_specs(topology, specs))
    finally:
        judge.close()
    return phases, judge.outputs, stores


def _fed(record: Arrived) -> Fed:
    return Fed(record.origin[0], record.key, record.value, record.timestamp, record.headers)


def _sinks(topology: Topology) -> Iterator[str]:
    for node in topology.nodes.values():
        if isinstance(node, SinkNode) and not node.internal and isinstance(node.topic, str):
            yield node.topic


def _reading(rows: Sequence[Judged]) -> Reading:
    """Rows of a key are in order if one shard writes them all."""
    shards: defaultdict[bytes | None, set[int]] = defaultdict(set)
    for row in rows:
        shards[row.sent.key].add(row.shard)
    return Reading.SEQUENCES if all(len(found) == 1 for found in shards.values()) else Reading.BAG


@dataclass
class Tally:
    """The counts of a run so far."""

    cases: int = 0
    left_out: int = 0
    epochs: int = 0
    restarts: int = 0
    records: int = 0
    verbs: Counter[str] = field(default_factory=Counter)
    found: list[Difference] = field(default_factory=list)


def _compared(host: ApplicationHost, one: Generated) -> tuple[int, list[Difference]]:
    first, *then = one.lanes
    combination = f"{one.lanes} lanes, caches {'on' if one.caching else 'off'}"
    try:
        result = host.run(one.scenario, one.phases, one.caching, Cut(EPOCH_RECORDS, first), then)
    except Exception as error:  # noqa: BLE001 - a run that fails is a difference
        return 0, [Difference(one.scenario.name, combination, "the run failed", f"  {type(error).__name__}: {error}")]
    return result.epochs, differences(one.scenario, combination, one.caching, one.expected, _without_prefixes(result))


def _without_prefixes(result: Result) -> Result:
    """Stores without a name are called after their topics, which have the prefix of the run."""
    stores = {kind: {PREFIX.sub("", name): entries for name, entries in found.items()} for kind, found in result.stores.items()}
    return replace(result, stores=stores)


def run(where: Where, seed: int, indices: Sequence[int], report: Path) -> bool:
    """Run cases of a seed; return whether nothing differs."""
    begun, tally = time.monotonic(), Tally()
    print(f"generated topologies on {where}: seed {seed}, {len(indices)} cases", flush=True)
    with ApplicationHost(where) as host, ThreadPoolExecutor(AT_A_TIME) as pool:
        cases = [generated(seed, index) for index in indices]
        ran = [one for one in cases if one is not None]
        tally.left_out = len(cases) - len(ran)
        for one, (epochs, found) in zip(ran, pool.map(partial(_compared, host), ran), strict=True):
            tally.cases += 1
            tally.epochs += epochs
            tally.restarts += len(one.lanes) - 1
            tally.records += sum(len(phase.records) for phase in one.phases)
            tally.verbs.update({name for op in one.case.ops for name in features(op)})
            tally.found += found
            for difference in found:
                print(f"\n{difference}", flush=True)
            if tally.cases % 10 == 0:
                print(f"  {tally.cases} topologies, {len(tally.found)} differences", flush=True)
    _report(report, where, seed, tally, round(time.monotonic() - begun, 1))
    print("not compared:")
    for item in LEFT_OUT:
        print(f"  {item.name}: {item.reason}")
    print(f"{tally.records} records, {tally.epochs} epochs, {tally.restarts} restarts, {len(tally.verbs)} verbs and kinds")
    print(f"{tally.cases} topologies on {where}, {tally.left_out} left out, {len(tally.found)} differences; see {report}")
    return not tally.found


def _report(path: Path, where: Where, seed: int, tally: Tally, seconds: float) -> None:
    figures = {
        "host": where,
        "seed": seed,
        "topologies": tally.cases,
        "differences": len(tally.found),
        "found": [str(difference) for difference in tally.found],
        "records": tally.records,
        "epochs": tally.epochs,
        "restarts": tally.restarts,
        "verbs": dict(sorted(tally.verbs.items())),
        "cases_left_out": tally.left_out,
        "left_out": [{"name": item.name, "reason": item.reason} for item in LEFT_OUT],
        "seconds": seconds,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; the exit code is 0 if nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m verification.integration.generated")
    parser.add_argument("--host", choices=("spark", "local", "cluster"), default="spark")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100, help="how many cases are generated; some are left out")
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args(arguments)
    indices = range(options.cases) if options.case is None else [options.case]
    report = options.report or Path(f"reports/generated-{options.host}.json")
    return 0 if run(options.host, options.seed, indices, report) else 1


if __name__ == "__main__":
    sys.exit(main())
