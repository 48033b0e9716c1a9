"""Compares the timers, ticks and answers that were found with those that the payments require."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from verification.chaos import oracle
from verification.chaos.checker import SHOWN, Output, Violation, by_key, compared, scattered
from verification.chaos.oracle import Seen, Sequences
from verification.chaos.payments import Payment
from verification.chaos.waiting.forms import EVENT, EVERY_MS, LATE_MS, answer_to, timers_of

CLOCK_MS = 50
"""By how much an epoch's watermark may be ahead of its wall clock, since it is read a moment later."""


class Fired(NamedTuple):
    """The output of a timer."""

    name: str
    due: int
    at: int


class Tick(NamedTuple):
    """The output of a schedule."""

    due: int
    at: int


@dataclass(frozen=True, slots=True)
class Found:
    """What Kafka has of the application: `pending` are timers by name with their times, `counts` are counts of ticks."""

    answers: Sequence[Output]
    fired: Sequence[Fired]
    pending: Mapping[str, int]
    ticks: Mapping[str, Sequence[Tick]]
    counts: Mapping[str, int]
    offsets: Mapping[int, int]


def check(payments: Iterable[Payment], found: Found, delay_ms: int) -> list[Violation]:
    """Check that it is exactly the result of the payments before the committed offsets; this must hold at any moment."""
    done = oracle.within(payments, found.offsets)
    return [*_check_answers(done, found.answers), *_check_timers(done, found, delay_ms), *_check_ticks(found)]


def check_all_fired(found: Found) -> Iterator[Violation]:
    """Check that no timer is pending at rest, long after all were due."""
    if found.pending:
        yield Violation("late", "timers", f"{len(found.pending)} have not fired, such as {sorted(found.pending)[:SHOWN]}")


def _check_answers(done: Sequence[Payment], answers: Sequence[Output]) -> Iterator[Violation]:
    expected: Sequences = defaultdict(list)
    for key, seen in oracle.echoes(done).items():
        expected[key] = [Seen(one.number, {**one.value, "answer": answer_to(one.number)}) for one in seen]
    yield from scattered("answers", answers)
    yield from compared("answers", expected, by_key(answers))


def _check_timers(done: Sequence[Payment], found: Found, delay_ms: int) -> Iterator[Violation]:
    """Each has fired once or is pending: never both, never neither."""
    expected = {name: due for payment in done for name, due in timers_of(payment, delay_ms).items()}
    times = Counter(fired.name for fired in found.fired)
    names = {
        "doubled": [name for name, count in times.items() if count > 1 or name in found.pending],
        "lost": [name for name in expected if name not in times and name not in found.pending],
        "uncommitted": [name for name in (*times, *found.pending) if name not in expected],
        "wrong": [name for name, due in _times(found) if expected.get(name, due) != due],
        "early": [fired.name for fired in found.fired if fired.at < fired.due - CLOCK_MS * fired.name.startswith(EVENT)],
    }
    for kind, wrong in names.items():
        if wrong:
            yield Violation(kind, "timers", f"{len(wrong)} of {len(expected)}, such as {sorted(wrong)[:SHOWN]}")


def _times(found: Found) -> Iterator[tuple[str, int]]:
    yield from found.pending.items()
    for fired in found.fired:
        yield fired.name, fired.due


def _check_ticks(found: Found) -> Iterator[Violation]:
    """Each tick was sent and counted once; only late ones are skipped, and none of those was sent."""
    for name, every_ms in EVERY_MS.items():
        ticks, where = found.ticks.get(name, ()), f"ticks of {name}"
        if found.counts.get(name, 0) != len(ticks):
            yield Violation("wrong", where, f"{found.counts.get(name, 0)} were counted, but {len(ticks)} sent")
        for one, other in pairwise(ticks):
            step = other.due - one.due
            if step <= 0:
                yield Violation("doubled", where, f"{other.due} came after {one.due}")
            elif step % every_ms:
                yield Violation("wrong", where, f"{other.due} is not a multiple of {every_ms} ms after {one.due}")
            elif step != every_ms and name == "all":
                yield Violation("lost", where, f"{step // every_ms - 1} between {one.due} and {other.due}")
        latest = {"all": None, "once": every_ms - 1, "skip": LATE_MS}[name]
        for due, at in ticks:
            if at < due:
                yield Violation("early", where, f"{due} came at {at}")
            elif latest is not None and at - due > latest:
                yield Violation("late", where, f"{due} came at {at}")
