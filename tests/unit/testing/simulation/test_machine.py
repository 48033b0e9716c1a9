"""A seed decides which thread runs next, and clocks move only while all threads wait."""

from __future__ import annotations

import pytest

from penstock import machine
from penstock.testing.simulation.machine import DeadlockError, SimulatedMachine


def letters(seed: int) -> str:
    """What three threads write that give way after each letter."""
    simulated, written = SimulatedMachine(seed), list[str]()

    def write(letter: str) -> None:
        for _ in range(4):
            written.append(letter)
            simulated.give_way()

    with machine.replaced(simulated):
        threads = [machine.thread(write, letter, (letter,)) for letter in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not any(thread.is_alive() for thread in threads)
    return "".join(written)


def test_a_seed_gives_the_same_order_each_time_and_another_one_another() -> None:
    assert letters(1) == letters(1)
    assert len({letters(seed) for seed in range(10)}) > 5


def test_clocks_move_only_while_all_threads_wait() -> None:
    simulated, heard = SimulatedMachine(3), list[tuple[str, float]]()
    with machine.replaced(simulated):
        began = machine.monotonic()

        def nap(name: str, seconds: float) -> None:
            machine.sleep(seconds)
            heard.append((name, machine.monotonic() - began))

        threads = [machine.thread(nap, name, (name, seconds)) for name, seconds in (("late", 3600.0), ("early", 0.5))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        simulated.jump(-100)
        assert machine.now_ms() == pytest.approx((began + 3500) * 1000)
        assert machine.monotonic() == began + 3600
    assert heard == [("early", 0.5), ("late", 3600.0)]


def test_an_event_ends_waits_or_their_time_does() -> None:
    with machine.replaced(SimulatedMachine(3)):
        event, found = machine.event(), list[bool]()
        waiting = machine.thread(lambda: found.append(event.wait(10)), "waiting")
        waiting.start()
        assert not event.wait(5)
        event.set()
        waiting.join()
        assert (found, event.is_set(), event.wait()) == ([True], True, True)
        event.clear()
        assert not event.wait(0)


def test_a_lock_is_held_by_one_thread() -> None:
    simulated = SimulatedMachine(4)
    with machine.replaced(simulated):
        lock, inside, most = machine.lock(), list[int](), list[int]()

        def enter() -> None:
            with lock:
                inside.append(1)
                simulated.give_way()
                most.append(len(inside))
                inside.pop()

        threads = [machine.thread(enter, "one of five") for _ in range(5)]
        for thread in threads:
            thread.start()
        assert lock.acquire(timeout=10)
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=1)
        lock.release()
        for thread in threads:
            thread.join()
    assert most == [1] * 5


def test_threads_of_a_killed_process_end_where_they_are() -> None:
    simulated, ended = SimulatedMachine(5), list[str]()

    def forever(name: str) -> None:
        try:
            while True:
                machine.sleep(1)
        finally:
            ended.append(name)
            machine.sleep(1)  # raises again
            ended.append("never")

    def begin() -> None:
        machine.thread(forever, "second", ("second",)).start()
        forever("first")

    with machine.replaced(simulated):
        process = simulated.process("victim", begin)
        machine.sleep(3.5)
        process.kill()
        machine.sleep(0)
        assert sorted(ended) == ["first", "second"]
        simulated.end()
    assert simulated.failures == []


def test_a_suspended_process_stands_still_until_it_is_resumed() -> None:
    simulated, seen = SimulatedMachine(6), list[float]()

    def look() -> None:
        while True:
            machine.sleep(1)
            seen.append(machine.monotonic())

    with machine.replaced(simulated):
        began = machine.monotonic()
        process = simulated.process("sleeper", look)
        machine.sleep(2.5)
        process.is_suspended = True
        machine.sleep(10)
        assert len(seen) == 2
        process.is_suspended = False
        machine.sleep(1.2)
        simulated.end()
    assert [round(each - began, 1) for each in seen] == [1.0, 2.0, 12.5, 13.5]


def test_threads_that_wait_for_each_other_are_named() -> None:
    simulated = SimulatedMachine(7)
    with machine.replaced(simulated):
        machine.thread(machine.event().wait, "a thread that nobody wakes").start()
        with pytest.raises(DeadlockError, match="a thread that nobody wakes"):
            machine.event().wait()


def test_what_a_thread_fails_with_is_kept() -> None:
    simulated = SimulatedMachine(8)
    with machine.replaced(simulated):
        thread = machine.thread(lambda: 1 // 0, "divides")
        thread.start()
        thread.join()
    [(name, failure)] = simulated.failures
    assert (name, type(failure)) == ("divides", ZeroDivisionError)
