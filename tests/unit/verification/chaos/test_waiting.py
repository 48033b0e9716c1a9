"""The checker of pending work fails on every violation it exists for, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.testing import TopologyTestDriver
from verification.chaos.checker import Output
from verification.chaos.payments import Payment
from verification.chaos.waiting import checker
from verification.chaos.waiting.checker import Fired, Found, Tick
from verification.chaos.waiting.forms import DELAY_MS, EVERY_MS, LATE_MS, WaitingTopics, answer_to, timers_of
from verification.chaos.waiting.topology import build

PAYMENTS = [Payment(n, f"k{n % 3}", n // 3, "g", 7, 0, n, 1_000_000 + 10 * n) for n in range(30)]
NOW = 5_000_000


def good() -> Found:
    """Twenty payments are read; the timers of half of them have fired."""
    done = PAYMENTS[:20]
    value = [
        {"number": p.number, "step": p.step, "group": p.group, "amount": p.amount, "answer": answer_to(p.number)} for p in done
    ]
    answers = [Output(0, p.offset, p.key, p.number, made) for p, made in zip(done, value, strict=True)]
    fired = [Fired(name, due, due + 3) for p in done[:10] for name, due in timers_of(p, DELAY_MS).items()]
    pending = {name: due for p in done[10:] for name, due in timers_of(p, DELAY_MS).items()}
    ticks = {name: [Tick(NOW + n * every, NOW + n * every + 5) for n in range(4)] for name, every in EVERY_MS.items()}
    return Found(answers, fired, pending, ticks, dict.fromkeys(EVERY_MS, 4), {0: 20})


def kinds(found: Found) -> set[tuple[str, str]]:
    return {(violation.kind, violation.where) for violation in checker.check(PAYMENTS, found, DELAY_MS)}


def test_a_correct_result_has_no_violation() -> None:
    assert not kinds(good())


def ticked(found: Found, name: str, ticks: list[Tick]) -> Found:
    return replace(found, ticks={**found.ticks, name: ticks}, counts={**found.counts, name: len(ticks)})


BREAKS: dict[str, tuple[Callable[[Found], Found], tuple[str, str]]] = {
    "a timer fires twice": (lambda f: replace(f, fired=[*f.fired, f.fired[3]]), ("doubled", "timers")),
    "a timer fires and is still pending": (
        lambda f: replace(f, pending={**f.pending, f.fired[0].name: f.fired[0].due}),
        ("doubled", "timers"),
    ),
    "a timer is gone": (lambda f: replace(f, fired=f.fired[1:]), ("lost", "timers")),
    "a pending timer is gone": (
        lambda f: replace(f, pending={name: due for name, due in f.pending.items() if name != "e15"}),
        ("lost", "timers"),
    ),
    "a timer of an unread payment": (lambda f: replace(f, pending={**f.pending, "p25": 7}), ("uncommitted", "timers")),
    "a timer too early": (lambda f: replace(f, fired=[f.fired[0]._replace(at=7), *f.fired[1:]]), ("early", "timers")),
    "a timer at another time": (lambda f: replace(f, pending={**f.pending, "p15": 7}), ("wrong", "timers")),
    "an answer twice": (lambda f: replace(f, answers=[*f.answers, f.answers[-1]]), ("doubled", "answers of k1")),
    "an answer is missing": (lambda f: replace(f, answers=f.answers[:-1]), ("lost", "answers of k1")),
    "answers out of order": (
        lambda f: replace(f, answers=[f.answers[3], *f.answers[1:3], f.answers[0], *f.answers[4:]]),
        ("reordered", "answers of k0"),
    ),
    "a tick twice": (lambda f: ticked(f, "once", [*f.ticks["once"], f.ticks["once"][-1]]), ("doubled", "ticks of once")),
    "a tick is lost": (lambda f: ticked(f, "all", [*f.ticks["all"][:1], *f.ticks["all"][2:]]), ("lost", "ticks of all")),
    "a tick counted twice": (lambda f: replace(f, counts={**f.counts, "all": 5}), ("wrong", "ticks of all")),
    "a tick between two intervals": (
        lambda f: ticked(f, "once", [Tick(NOW, NOW), Tick(NOW + 251, NOW + 260)]),
        ("wrong", "ticks of once"),
    ),
    "a late tick is not skipped": (lambda f: ticked(f, "skip", [Tick(NOW, NOW + LATE_MS + 1)]), ("late", "ticks of skip")),
    "an older tick than the last": (lambda f: ticked(f, "once", [Tick(NOW, NOW + 250)]), ("late", "ticks of once")),
    "a tick too early": (lambda f: ticked(f, "all", [Tick(NOW, NOW - 1)]), ("early", "ticks of all")),
}


@pytest.mark.parametrize(("spoil", "expected"), BREAKS.values(), ids=BREAKS.keys())
def test_each_violation_has_a_name(spoil: Callable[[Found], Found], expected: tuple[str, str]) -> None:
    assert expected in kinds(spoil(good()))


def test_no_timer_is_pending_at_rest() -> None:
    assert [violation.kind for violation in checker.check_all_fired(good())] == ["late"]


def test_the_application_satisfies_its_checker() -> None:
    topics = WaitingTopics("app")
    with TopologyTestDriver(build(topics), wall_clock=1_000_000) as driver:
        for payment in PAYMENTS[:6]:
            driver.pipe_raw(topics.input, payment.key.encode(), payment.value(), payment.timestamp, ())
        driver.advance_wall_clock(3 * DELAY_MS)
        fired = {(value["timer"], value["due"]) for value in driver.output(topics.fired).values()}
        assert fired == {pair for payment in PAYMENTS[:6] for pair in timers_of(payment, DELAY_MS).items()}
        assert [value["answer"] for value in driver.output(topics.echo).values()] == [answer_to(n) for n in range(6)]
        ticks = driver.output(topics.ticks).values()
        assert len(ticks) == 3 * DELAY_MS // EVERY_MS["all"] + 2
