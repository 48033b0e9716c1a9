"""A case's actual result: the in-process epoch host, taken through the case's course together with the judge."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from penstock.state import StoreSpec
from penstock.topology import SourceNode, Topology
from verification.conformance.build import Effects, build
from verification.conformance.epochs.course import Action, Feed, Run, course
from verification.conformance.epochs.dsl import EpochDsl
from verification.conformance.epochs.internals import (
    Application,
    Attempt,
    Contents,
    has_scattered_processors,
    in_columns,
    in_small_pieces,
    in_threads,
    kept_specs,
    shards_by_default,
    specs_of,
    ways_of,
)
from verification.conformance.epochs.judge import Judge, Judged, Sent
from verification.conformance.epochs.library import supplier
from verification.conformance.epochs.lives import Begin, begins
from verification.conformance.epochs.living import LIVES, Living
from verification.conformance.epochs.router import Origin, origins_of
from verification.conformance.epochs.spec import EpochCase, Input, Restart

MEMORY = "/dev/shm"  # noqa: S108 - a place for directories of our own
"""A file system in memory, if there is one."""


@dataclass
class Outcome:
    """Both results of a case: outputs, contents of stores and changelogs, dropped records, failures."""

    expected: list[Judged] = field(default_factory=list)
    actual: list[Sent] = field(default_factory=list)
    expected_stores: list[Contents] = field(default_factory=list)
    stores: list[tuple[range, Contents]] = field(default_factory=list)
    changelogs: list[tuple[range, Contents]] = field(default_factory=list)
    expected_dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    committed_reads: list[tuple[list[Contents], list[tuple[range, Contents]]]] = field(default_factory=list)
    """What reads of the committed epoch should find while lanes are ahead, and what they find."""
    expected_failure: str | None = None
    failure: str | None = None
    unstable: str | None = None
    unclosed: list[str] = field(default_factory=list)
    """The processors that nobody has closed."""
    lane_changes: int = 0
    in_flight: int = 0
    in_columns: int = 0
    in_threads: int = 0
    is_left_out: bool = False
    origins: dict[Origin, int] = field(default_factory=dict)


def play(case: EpochCase) -> Outcome:
    """Take a case through its course, in the judge and in the host."""
    Living.open.clear()
    with tempfile.TemporaryDirectory(prefix="penstock", dir=MEMORY if Path(MEMORY).is_dir() else None) as name:
        folder = Path(name)
        topology = build(case, Effects(folder), supplier, EpochDsl)
        if has_scattered_processors(topology):
            return Outcome(is_left_out=True)
        judged = build(case, Effects(folder), supplier, partial(EpochDsl, is_judge=True))
        caching = case.settings.caching and not any(ways_of(topology).values())
        specs = specs_of(topology, caching=caching)
        outcome = Outcome(origins=origins_of(case.steps))
        # The judge's shards are created with the first epoch, when its punctuators begin to count.
        actions = list(course(case, topology))
        first = next((action.wall_clock for action in actions if isinstance(action, Run)), case.settings.wall_clock)
        judge = Judge(case, judged, specs_of(judged, caching=caching), first)
        origins = list(outcome.origins)
        how: dict[str, Any] = {"caching": caching, "columns": case.columns, "failures": case.failures, "threads": case.threads}
        application = Application(topology, folder / "state", shards_of(case, topology), origins, **how)
        kept = kept_specs(topology, specs)
        try:
            pieces = nullcontext() if case.columns else in_small_pieces()
            with in_columns() as settled, in_threads(topology) as apart, pieces:
                _Play(case, application, judge, outcome, folder / "copy", kept).all(actions, begins(actions, case.in_flight))
            outcome.in_columns, outcome.in_threads = len(settled), sum(apart)
            if outcome.failure is None and outcome.expected_failure is None:
                outcome.expected_stores = judge.contents(kept)
                outcome.stores, outcome.changelogs = application.contents(kept), application.rebuilt(kept)
                outcome.expected_dropped = judge.dropped()
        finally:
            application.close()
            judge.close()
        outcome.unclosed = [type(living).__name__ for living in Living.open]
        return outcome


def shards_of(case: EpochCase, topology: Topology) -> int:
    """The shards of the application.

    If the case has as many as its widest topic has partitions, they are not set: then the application has to come to the same.
    """
    sources = {name: node for name, node in topology.nodes.items() if isinstance(node, SourceNode)}
    tables = {topic for name in topology.global_stores.values() for topic in sources[name].topics}
    places = [(topic, 0) for topic in case.topics] + [
        (step.topic, step.partition) for step in case.steps if isinstance(step, Input)
    ]
    widths: dict[str, int] = {}
    for topic, partition in places:
        widths[topic] = max(widths.get(topic, 0), 1 + partition)
    widest = max((width for topic, width in widths.items() if topic not in tables), default=0)
    return shards_by_default(topology, widths) if case.shards == widest else case.shards


class _Flight(NamedTuple):
    """An epoch that has run and is not committed yet, and the content of the judge's stores before it."""

    action: Run
    attempt: Attempt
    before: list[Contents]


class _Play:
    """A running case."""

    def __init__(
        self, case: EpochCase, application: Application, judge: Judge, outcome: Outcome, copy: Path, kept: list[StoreSpec]
    ) -> None:
        self._kept = kept
        self._is_repeatable = not any(op.args.get("fn") in LIVES for op in case.ops)
        self._most_in_flight = case.in_flight
        self._flights: list[_Flight] = []
        self._application = application
        self._judge = judge
        self._outcome = outcome
        self._copy = copy
        self._failure_ahead: str | None = None
        self._lanes = case.lanes
        self._application.start(case.lanes, case.settings.wall_clock, tidy=True)

    def all(self, actions: list[Action], begins: list[Begin]) -> None:
        """Run everything, or up to the first failure; `begins` is what becomes of the processors in each epoch."""
        following = iter(begins)
        for action in actions:
            if isinstance(action, Feed):
                self._commit()  # an epoch that ran again would see another global table
                self._judge.feed(action.record)
                self._application.feed(action.record)
            elif isinstance(action, Run):
                self._epoch(action, next(following))
            else:
                try:
                    self._restart(action.restart, action.ahead, action.wall_clock)
                except Exception as error:  # noqa: BLE001 - what a start fails of is a result
                    self._outcome.failure = f"{type(error).__name__}: {error}"
            if self._outcome.failure is not None or self._outcome.expected_failure is not None:
                break
        self._commit()
        self._outcome.failure = self._outcome.failure or self._failure_ahead

    def _epoch(self, action: Run, begin: Begin) -> None:
        outcome, judge = self._outcome, self._judge
        known = len(judge.outputs)
        before = judge.contents(self._kept) if self._most_in_flight else []
        try:
            judge.epoch(action.records, outcome.origins, action.wall_clock, begin)
        except Exception as error:  # noqa: BLE001 - a failing case is a result
            outcome.expected_failure = f"{type(error).__name__}: {error}"
            del judge.outputs[known:]
        outcome.expected = judge.outputs
        try:
            taken_back = self._attempts(action)
            attempt = self._send(action, before)
            if action.cut.fails:
                self._fail(action)
        except Exception as error:  # noqa: BLE001 - a failing case is a result
            outcome.failure = f"{type(error).__name__}: {error}"
            return
        for first in taken_back:
            self._note_difference(first, attempt)
        self._commit(self._most_in_flight)
        self._after(action)

    def _attempts(self, action: Run) -> list[Attempt]:
        """Run what is not committed.

        If it fails, that is the result of the case, but not yet: what it fails of may be in a later epoch of the judge.
        """
        try:
            return [self._application.run(records, action.wall_clock) for records in action.before]
        except Exception as error:  # noqa: BLE001 - a failing case is a result
            self._failure_ahead = self._failure_ahead or f"{type(error).__name__}: {error}"
            return []

    def _send(self, action: Run, before: list[Contents]) -> Attempt:
        """Run an epoch and put it in flight; the last commit can still be read."""
        application, outcome = self._application, self._outcome
        attempt = application.run(action.records, action.wall_clock)
        application.send(attempt)
        outcome.in_flight += bool(self._flights)
        self._flights.append(_Flight(action, attempt, before))
        if self._most_in_flight:
            outcome.committed_reads.append((self._flights[0].before, application.committed_contents(self._kept)))
        return attempt

    def _fail(self, action: Run) -> None:
        """Take all epochs in flight back and run them again, as after a commit that failed."""
        flights, self._flights = self._flights, []
        self._application.take_back(action.wall_clock)
        for flight in flights:
            self._note_difference(flight.attempt, self._send(flight.action, flight.before))

    def _commit(self, left: int = 0) -> None:
        """Commit epochs in flight, the first one first, until so many are left."""
        while len(self._flights) > left:
            attempt = self._flights.pop(0).attempt
            self._application.commit()
            self._outcome.actual += [Sent(*row) for row in attempt.sent]
            self._outcome.dropped.update(attempt.dropped)

    def _note_difference(self, first: Attempt, again: Attempt) -> None:
        """Check that an epoch that runs again with the same records gives the same rows, unless attributes are in them."""
        if self._is_repeatable and first.records == again.records and first.sent != again.sent and self._outcome.unstable is None:
            self._outcome.unstable = f"epoch {first.number}: {first.sent}, but {again.sent} when it ran again"

    def _after(self, action: Run) -> None:
        cut, application = action.cut, self._application
        if cut.compact:
            application.compact()
        if cut.mark:
            application.note_mark(action.wall_clock)
        if cut.copy:
            application.copy(self._copy)
        if cut.moves:
            application.move()

    def _restart(self, restart: Restart, ahead: Any, now: int) -> None:
        application = self._application
        if restart.stores == "kept":
            self._commit()
        if ahead is not None:
            with suppress(Exception):  # the same records are processed again after the start, and may fail there
                application.run(ahead, now)
        if restart.stores == "deleted" or (restart.stores == "older" and not self._copy.exists()):
            application.forget()
        elif restart.stores == "older":
            application.come_from(self._copy)
        elif restart.stores == "foreign":
            application.come_from_elsewhere(restart.lanes, now)
        application.start(restart.lanes, now, tidy=restart.tidy)
        self._outcome.lane_changes += restart.lanes != self._lanes
        self._lanes = restart.lanes
        lost, self._flights = self._flights, []
        for flight in lost:
            self._send(flight.action, flight.before)
