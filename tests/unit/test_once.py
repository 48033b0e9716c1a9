"""A property that is computed once per object, and for which objects do not wait for each other."""

from __future__ import annotations

import threading

import pytest

from penstock.once import once

PATIENCE_S = 20


class Slow:
    def __init__(self, *, waits: bool) -> None:
        self.began = threading.Event()
        self.may_go_on = threading.Event()
        self.times = 0
        if not waits:
            self.may_go_on.set()

    @once
    def found(self) -> int:
        """What was found."""
        self.began.set()
        assert self.may_go_on.wait(PATIENCE_S)
        self.times += 1
        return self.times


def test_it_is_computed_on_first_use_and_then_kept() -> None:
    slow = Slow(waits=False)
    assert slow.times == 0
    assert (slow.found, slow.found, slow.times) == (1, 1, 1)
    assert Slow.found.__doc__ == "What was found."


def test_no_object_waits_for_another() -> None:
    stuck = Slow(waits=True)
    thread = threading.Thread(target=lambda: stuck.found)
    thread.start()
    assert stuck.began.wait(PATIENCE_S)
    assert Slow(waits=False).found == 1  # a cached_property of Python 3.11 would wait here
    stuck.may_go_on.set()
    thread.join()


def test_threads_that_use_it_at_the_same_time_get_the_same() -> None:
    slow, found = Slow(waits=True), list[int]()
    threads = [threading.Thread(target=lambda: found.append(slow.found)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert slow.began.wait(PATIENCE_S)
    slow.may_go_on.set()
    for thread in threads:
        thread.join()
    assert (found, slow.times) == ([1, 1, 1, 1], 1)


def test_what_fails_is_tried_again() -> None:
    class Fails:
        tries = 0

        @once
        def found(self) -> int:
            self.tries += 1
            if self.tries == 1:
                raise OSError("not yet")
            return self.tries

    fails = Fails()
    with pytest.raises(OSError, match="not yet"):
        _ = fails.found
    assert fails.found == 2
