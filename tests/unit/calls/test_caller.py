"""Calls and their limits: concurrency, order, timeouts, retries; and that none is left pending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from penstock import CircuitBreaker, ResultCache
from penstock.calls import Caller, Callers, LoopThread
from penstock.errors import CircuitOpenError
from penstock.testing import FakeAsync
from tests.unit.calls.virtual_calls import VirtualThread, answered, call_to, requests, tasks_of, virtual


@pytest.fixture
def thread() -> Iterator[VirtualThread]:
    with virtual() as made:
        yield made


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """Interrupt the block after a moment, as by Ctrl-C."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def double(value: int) -> int:
    return value * 2


class TestOrder:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("batch", [None, 3])
    def test_answers_come_in_the_order_of_requests_and_calls_of_a_key_one_after_another(
        self, thread: VirtualThread, seed: int, batch: int | None
    ) -> None:
        chance = random.Random(seed)
        running: defaultdict[str, int] = defaultdict(int)
        seen: defaultdict[str, list[int]] = defaultdict(list)
        overlaps: list[str] = []
        pairs = [(chance.choice("abcdefgh"), number) for number in range(200)]
        key_of = {number: key for key, number in pairs}

        async def one(value: int) -> int:
            key = key_of[value]
            overlaps.extend([key] if running[key] else [])
            running[key] += 1
            seen[key].append(value)
            await asyncio.sleep(chance.random())
            running[key] -= 1
            return value * 2

        async def several(batch: list[tuple[str, int]]) -> list[int]:
            keys = {key for key, _ in batch}
            overlaps.extend(key for key in keys if running[key])
            for key, value in batch:
                running[key] += 1
                seen[key].append(value)
            await asyncio.sleep(chance.random())
            for key, _ in batch:
                running[key] -= 1
            return [value * 2 for _, value in batch]

        caller = Caller(call_to(one if batch is None else several, ordered=True, concurrency=20, batch=batch), thread)
        assert answered(caller, requests(*pairs)) == [number * 2 for _, number in pairs]
        assert not overlaps
        assert all(numbers == sorted(numbers) for numbers in seen.values())

    def test_unordered_calls_of_a_key_overlap_but_answers_come_in_order(self, thread: VirtualThread) -> None:
        fake = FakeAsync(lambda value: value, delay=lambda value: 100 - value)
        asked = requests(*[("a", number) for number in range(50)])
        assert answered(Caller(call_to(fake, ordered=False), thread), asked) == list(range(50))
        assert fake.most_at_once == 50
        ordered = FakeAsync(lambda value: value, delay=5)
        assert answered(Caller(call_to(ordered, ordered=True), thread), asked) == list(range(50))
        assert ordered.most_at_once == 1

    def test_records_without_a_key_have_no_order(self, thread: VirtualThread) -> None:
        fake = FakeAsync(1, delay=5)
        answered(Caller(call_to(fake, ordered=True), thread), requests(*[(None, number) for number in range(9)]))
        assert fake.most_at_once == 9

    def test_keys_that_cannot_be_hashed_have_an_order(self, thread: VirtualThread) -> None:
        fake = FakeAsync(1, delay=5)
        pairs = [({"id": number % 2}, number) for number in range(10)]
        answered(Caller(call_to(fake, ordered=True), thread), requests(*pairs))
        assert fake.most_at_once == 2


class TestConcurrency:
    @pytest.mark.parametrize("ordered", [False, True])
    @pytest.mark.parametrize("limit", [1, 7, 64])
    def test_the_limit_is_reached_and_never_exceeded(self, thread: VirtualThread, limit: int, ordered: bool) -> None:
        chance = random.Random(limit)
        fake = FakeAsync(1, delay=lambda value: chance.randrange(50), error=lambda value: OSError() if value % 7 == 0 else None)
        asked = requests(*[(number % 150, number) for number in range(500)])
        answered(Caller(call_to(fake, concurrency=limit, ordered=ordered, retries=1), thread), asked)
        assert fake.most_at_once == limit

    def test_lanes_of_a_process_take_turns(self) -> None:
        at_once: list[int] = []
        under_way: list[int] = []

        async def call(value: int) -> int:
            under_way.append(value)
            at_once.append(len(under_way))
            await asyncio.sleep(0.002)
            under_way.remove(value)
            return value

        thread = LoopThread()
        caller = Caller(call_to(call, concurrency=3), thread)
        lanes = [
            threading.Thread(target=answered, args=(caller, requests(*[(None, lane * 100 + n) for n in range(20)])))
            for lane in range(3)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        thread.stop()
        assert max(at_once) == 3


class TestFailures:
    def test_a_call_that_takes_too_long_fails_alone(self, thread: VirtualThread) -> None:
        fake = FakeAsync(lambda value: value, delay=lambda value: value)
        slow, quick = answered(Caller(call_to(fake, timeout_ms=2_000), thread), requests(("a", 2_500), ("b", 1_500)))
        assert isinstance(slow, TimeoutError)
        assert str(slow) == "no answer within 2000 ms"
        assert quick == 1_500

    def test_a_timeout_does_not_cancel_the_next_call_of_the_task(self, thread: VirtualThread) -> None:
        async def call(value: int) -> int:
            await asyncio.sleep(value)
            await asyncio.sleep(0)
            return value

        found = answered(
            Caller(call_to(call, timeout_ms=2_000, concurrency=1), thread), requests(*[(None, n) for n in (3, 1, 2, 3, 0)])
        )
        assert [type(answer).__name__ for answer in found] == ["TimeoutError", "int", "TimeoutError", "TimeoutError", "int"]

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks count how often they were cancelled since Python 3.11")
    def test_a_timeout_resets_the_tasks_cancellation_count(self, thread: VirtualThread) -> None:
        async def call(value: int) -> int:
            await asyncio.sleep(value)
            counted: int = asyncio.current_task().cancelling()  # type: ignore[union-attr]
            return counted

        caller = Caller(call_to(call, timeout_ms=2_000, concurrency=1), thread)
        assert answered(caller, requests((None, 3), (None, 1)))[1] == 0

    def test_a_function_that_swallows_its_cancellation_does_not_keep_the_work_going(self) -> None:
        calls = 0

        async def call(value: int) -> int:
            nonlocal calls
            calls += 1
            if value == 0:
                raise ValueError
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return 7
            return value

        thread = LoopThread()
        answers = Caller(call_to(call, concurrency=3), thread).answers(requests(*[(None, number) for number in range(50)]))
        next(answers)
        answers.close()
        assert calls <= 6
        assert not tasks_of(thread)
        thread.stop()

    def test_a_function_that_swallows_its_timeout_fails_by_name_and_the_others_go_on(self, thread: VirtualThread) -> None:
        async def stubborn(value: int) -> int:
            while value == 0:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1_000)
            return value

        caller = Caller(call_to(stubborn, timeout_ms=1_000, concurrency=1), thread)
        error, *others = answered(caller, requests(*[("a", number) for number in range(3)]))
        assert isinstance(error, TimeoutError)
        assert "stubborn goes on although it was cancelled: it must let asyncio.CancelledError pass" in str(error)
        assert others == [1, 2]

    def test_a_function_that_swallows_every_cancellation_does_not_keep_an_epoch_from_ending(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("penstock.calls.work.STOP_SECONDS", 0.05)
        let_go = threading.Event()

        async def stubborn(value: int) -> int:
            if value == 0:
                raise ValueError
            while not let_go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
            return value

        thread = LoopThread()
        answers = Caller(call_to(stubborn, timeout_ms=None), thread).answers(requests((None, 0), (None, 1)))
        next(answers)
        answers.close()
        let_go.set()
        assert "stubborn go on although they were cancelled" in caplog.text
        thread.stop()

    def test_sys_exit_in_a_task_of_the_functions_own_does_not_end_the_loop(self) -> None:
        async def call(value: int) -> int:
            if value == 0:
                asyncio.get_running_loop().call_soon(sys.exit)
                await asyncio.sleep(0.01)
            return value

        thread = LoopThread()
        assert answered(Caller(call_to(call), thread), requests((None, 0), (None, 1))) == [0, 1]
        thread.stop()

    def test_a_failed_call_is_retried_after_waits_that_double_with_some_jitter(self, thread: VirtualThread) -> None:
        times: list[float] = []

        async def call(value: int) -> int:
            times.append(asyncio.get_running_loop().time())
            if len(times) < 4:
                raise ConnectionError(str(len(times)))
            return value

        assert answered(Caller(call_to(call, retries=3, backoff_ms=1_000), thread), requests(("a", 5))) == [5]
        waits = [after - before for before, after in pairwise(times)]
        for wait, most in zip(waits, (1, 2, 4), strict=True):
            assert most / 2 <= wait <= most + 0.01
        assert any(wait < most * 0.99 for wait, most in zip(waits, (1, 2, 4), strict=True))

    def test_when_all_attempts_fail_the_last_error_is_returned(self, thread: VirtualThread) -> None:
        fake = FakeAsync(1, error=[ConnectionError("first"), ConnectionError("second"), ConnectionError("third"), None])
        [error] = answered(Caller(call_to(fake, retries=2), thread), requests(("a", 5)))
        assert str(error) == "third"
        assert len(fake.calls) == 3

    def test_an_early_failure_is_returned_before_all_calls_are_done(self) -> None:
        async def call(value: int) -> int:
            if value == 1:
                raise ValueError("first")
            await asyncio.sleep(60)
            return value

        thread = LoopThread()
        answers = Caller(call_to(call), thread).answers(requests(("a", 1), ("b", 2)))
        assert isinstance(next(answers).error, ValueError)
        answers.close()
        assert not tasks_of(thread)
        thread.stop()

    def test_a_function_that_raises_cancelled_error_fails(self, thread: VirtualThread) -> None:
        async def call(value: int) -> int:
            raise asyncio.CancelledError

        [error, _] = answered(Caller(call_to(call, timeout_ms=None), thread), requests(("a", 1), ("b", 1)))
        assert str(error) == "The function raised CancelledError."


class TestCancellation:
    def test_closing_the_answers_cancels_all_pending_calls(self) -> None:
        cleaned = 0

        async def call(value: int) -> int:
            nonlocal cleaned
            try:
                await asyncio.sleep(0 if value == 0 else 60)
                if value == 0:
                    raise ValueError("ends it")
            finally:
                await asyncio.sleep(0.001)
                cleaned += 1
            return value

        thread = LoopThread()
        answers = Caller(call_to(call, concurrency=10), thread).answers(requests(*[(None, number) for number in range(30)]))
        next(answers)
        answers.close()
        assert not tasks_of(thread)
        assert cleaned >= 10
        thread.stop()

    def test_an_interrupt_while_waiting_cancels_all_pending_calls(self) -> None:
        async def call(value: int) -> None:
            await asyncio.sleep(60)

        thread = LoopThread()
        answers = Caller(call_to(call, concurrency=2), thread).answers(requests(("a", 1), ("b", 2), ("c", 3)))
        with interrupted(), pytest.raises(KeyboardInterrupt):
            next(answers)
        assert not tasks_of(thread)
        thread.stop()

    def test_closing_the_answers_waits_for_blocking_calls(self) -> None:
        ended: list[int] = []

        def call(value: int) -> int:
            if value == 0:
                raise ValueError("ends it")
            time.sleep(0.05)
            ended.append(value)
            return value

        thread = LoopThread()
        caller = Caller(call_to(call, concurrency=4, timeout_ms=None), thread)
        answers = caller.answers(requests(*[(None, number) for number in range(30)]))
        next(answers)
        answers.close()
        done = len(ended)
        assert done < 29
        time.sleep(0.1)
        assert len(ended) == done
        assert not thread.blocking
        caller.close()
        thread.stop()


class TestBlockingFunctions:
    def test_they_run_in_threads_up_to_the_limit(self) -> None:
        lock, under_way, most = threading.Lock(), 0, 0

        def call(value: int) -> int:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            time.sleep(0.005)
            with lock:
                under_way -= 1
            return value + 1

        thread = LoopThread()
        caller = Caller(call_to(call, concurrency=8, timeout_ms=None), thread)
        assert answered(caller, requests(*[(None, number) for number in range(40)])) == list(range(1, 41))
        assert most == 8
        caller.close()
        thread.stop()

    def test_virtual_time_waits_for_blocking_functions(self, thread: VirtualThread) -> None:
        def call(value: int) -> int:
            time.sleep(0.01)
            return value

        caller = Caller(call_to(call, timeout_ms=None, retries=1), thread)
        assert answered(caller, requests(("a", 1))) == [1]
        caller.close()

    def test_one_that_returns_an_awaitable_fails_with_the_cure(self, thread: VirtualThread) -> None:
        caller = Caller(call_to(lambda value: double(value + 1), timeout_ms=None), thread)
        [error] = answered(caller, requests(("a", 1)))
        assert isinstance(error, TypeError)
        assert "define it with async def" in str(error)
        caller.close()


def test_virtual_time_waits_for_a_connection(thread: VirtualThread) -> None:
    here, there = socket.socketpair()
    here.setblocking(False)

    async def call(value: int) -> bytes:
        threading.Timer(0.02, there.send, [b"answer"]).start()
        return await asyncio.get_running_loop().sock_recv(here, 100)

    assert answered(Caller(call_to(call, timeout_ms=10_000), thread), requests(("a", 1))) == [b"answer"]
    here.close()
    there.close()


class TestBreaker:
    def test_it_opens_tries_one_call_after_the_pause_and_closes_when_that_succeeds(self, thread: VirtualThread) -> None:
        is_down = True
        fake = FakeAsync(lambda value: value, error=lambda value: ConnectionError("down") if is_down else None)
        call = call_to(fake, concurrency=1, breaker=CircuitBreaker(failures=3, pause="10s"))
        caller = Caller(call, thread)

        def kinds(count: int) -> list[str]:
            return [type(answer).__name__ for answer in answered(caller, requests(*[(None, number) for number in range(count)]))]

        assert kinds(6) == ["ConnectionError"] * 3 + ["CircuitOpenError"] * 3
        assert len(fake.calls) == 3
        thread.now_ms += 9_000
        assert kinds(2) == ["CircuitOpenError"] * 2
        thread.now_ms += 1_100
        assert kinds(3) == ["ConnectionError"] + ["CircuitOpenError"] * 2  # the call that was tried opens it again
        assert len(fake.calls) == 4
        is_down = False
        thread.now_ms += 10_100
        assert kinds(4) == ["int"] * 4

    def test_only_one_call_is_tried_while_the_others_fail_fast(self, thread: VirtualThread) -> None:
        fake = FakeAsync(1, delay="1s", error=[ConnectionError("down")])
        caller = Caller(call_to(fake, concurrency=8, breaker=CircuitBreaker(1, "10s")), thread)
        answered(caller, requests((None, 0)))
        thread.now_ms += 10_100
        found = answered(caller, requests(*[(None, number) for number in range(8)]))
        assert found[0] == 1
        assert all(isinstance(answer, CircuitOpenError) for answer in found[1:])

    def test_an_answer_between_failures_resets_the_count(self, thread: VirtualThread) -> None:
        down = ConnectionError("down")
        fake = FakeAsync(1, error=[down, down, None, down, down, None])
        caller = Caller(call_to(fake, concurrency=1, breaker=CircuitBreaker(3, "10s")), thread)
        found = answered(caller, requests(*[(None, number) for number in range(6)]))
        assert [answer == 1 for answer in found] == [False, False, True, False, False, True]

    def test_no_retry_is_made_once_it_has_opened_and_the_cause_is_kept(self, thread: VirtualThread) -> None:
        fake = FakeAsync(1, error=ConnectionError("down"))
        caller = Caller(call_to(fake, retries=5, breaker=CircuitBreaker(2, "10m")), thread)
        [error] = answered(caller, requests((None, 0)))
        assert isinstance(error, CircuitOpenError)
        assert str(error.__cause__) == "down"
        assert len(fake.calls) == 2

    def test_a_trial_call_that_was_cancelled_does_not_keep_it_open(self) -> None:
        is_down = True

        async def call(value: int) -> int:
            if is_down:
                raise ConnectionError
            await asyncio.sleep(60 if value == 1 else 0)
            return value

        thread = LoopThread()
        caller = Caller(call_to(call, breaker=CircuitBreaker(1, "1ms")), thread)
        answered(caller, requests((None, 0)))
        is_down = False
        time.sleep(0.01)
        with interrupted(), pytest.raises(KeyboardInterrupt):
            answered(caller, requests((None, 1)))
        assert answered(caller, requests((None, 4))) == [4]
        thread.stop()


class TestCache:
    def test_the_same_call_is_made_once_until_its_answer_expires(self, thread: VirtualThread) -> None:
        def by(key: Any, value: Any) -> Any:
            return value % 3

        fake = FakeAsync(lambda value: f"answer to {value % 3}", delay=10)
        caller = Caller(call_to(fake, cache=ResultCache("10s", by)), thread)
        asked = requests(*[(None, number) for number in range(9)], question=by)
        assert answered(caller, asked) == [f"answer to {number % 3}" for number in range(9)]
        assert len(fake.calls) == 3  # also while the first answer is pending
        thread.now_ms += 9_000
        answered(caller, asked)
        assert len(fake.calls) == 3
        thread.now_ms += 1_100
        answered(caller, asked)
        assert len(fake.calls) == 6

    def test_it_keeps_the_most_recently_used_answers(self, thread: VirtualThread) -> None:
        def by(key: Any, value: Any) -> Any:
            return value

        fake = FakeAsync(lambda value: value)
        caller = Caller(call_to(fake, concurrency=1, cache=ResultCache("1h", by, size=2)), thread)
        for value in (1, 2, 1, 3, 1, 2):
            assert answered(caller, requests((None, value), question=by)) == [value]
        assert [value for (value,) in fake.calls] == [1, 2, 3, 2]

    def test_failures_are_not_kept(self, thread: VirtualThread) -> None:
        def by(key: Any, value: Any) -> Any:
            return value

        fake = FakeAsync(lambda value: value, error=[ConnectionError("down"), None])
        caller = Caller(call_to(fake, cache=ResultCache("1h", by)), thread)
        asked = requests((None, 1), question=by)
        assert isinstance(answered(caller, asked)[0], ConnectionError)
        assert answered(caller, asked) == [1]

    def test_a_batch_has_only_requests_that_are_not_cached(self, thread: VirtualThread) -> None:
        def by(key: Any, value: Any) -> Any:
            return value

        fake = FakeAsync(lambda pairs: [value * 2 for _, value in pairs])
        caller = Caller(call_to(fake, batch=10, cache=ResultCache("1h", by)), thread)
        answered(caller, requests(("a", 1), ("b", 2), question=by))
        assert answered(caller, requests(("a", 1), ("c", 3), ("b", 2), question=by)) == [2, 6, 4]
        assert fake.calls[-1] == ([("c", 3)],)


class TestBatches:
    def test_the_function_gets_a_batch_of_pairs_at_a_time(self, thread: VirtualThread) -> None:
        fake = FakeAsync(lambda pairs: [f"{key}{value}" for key, value in pairs])
        caller = Caller(call_to(fake, batch=4), thread)
        assert answered(caller, requests(*[("k", number) for number in range(10)])) == [f"k{number}" for number in range(10)]
        assert [len(pairs) for (pairs,) in fake.calls] == [4, 4, 2]

    def test_an_exception_among_the_results_fails_only_its_record(self, thread: VirtualThread) -> None:
        fake = FakeAsync(lambda pairs: [ValueError("odd") if value % 2 else value for _, value in pairs])
        found = answered(Caller(call_to(fake, batch=4), thread), requests(*[("k", number) for number in range(4)]))
        assert [answer if isinstance(answer, int) else str(answer) for answer in found] == [0, "odd", 2, "odd"]

    def test_too_few_results_fail_the_whole_batch_without_a_retry(self, thread: VirtualThread) -> None:
        fake = FakeAsync(lambda pairs: [1])
        found = answered(Caller(call_to(fake, batch=4, retries=3), thread), requests(("a", 1), ("b", 2)))
        assert all("returned 1 results for 2 requests" in str(error) for error in found)
        assert len(fake.calls) == 1


class TestClients:
    def test_setup_is_called_once_and_its_client_exits_when_the_callers_are_closed(self, thread: VirtualThread) -> None:
        events: list[str] = []

        class Client:
            async def __aenter__(self) -> str:
                events.append("entered")
                return "client"

            async def __aexit__(self, *_: object) -> None:
                events.append("left")

        async def call(value: int, client: str) -> str:
            return f"{client} {value}"

        callers = Callers(thread)
        call_with_client = call_to(call, setup=Client)
        for value in (1, 2):
            assert answered(callers.of("node", call_with_client), requests(("a", value))) == [f"client {value}"]
        assert events == ["entered"]
        callers.close()
        assert events == ["entered", "left"]

    @pytest.mark.parametrize("kind", ["plain", "coroutine", "context manager"])
    def test_setup_may_return_a_client_in_any_way(self, thread: VirtualThread, kind: str) -> None:
        class Session:
            is_open = False

            def __enter__(self) -> Any:
                self.is_open = True
                return self

            def __exit__(self, *_: object) -> None:
                self.is_open = False

        async def opened() -> dict[str, bool]:
            await asyncio.sleep(100)
            return {"is_open": True}

        async def call(value: int, client: Any) -> Any:
            return client

        setup: Any = {"plain": lambda: {"is_open": True}, "coroutine": opened, "context manager": Session}[kind]
        caller = Caller(call_to(call, setup=setup), thread)
        [client] = answered(caller, requests(("a", 1)))
        assert client["is_open"] if isinstance(client, dict) else client.is_open
        caller.close()
        assert isinstance(client, dict) or not client.is_open

    def test_a_setup_that_fails_says_so_and_is_called_again_the_next_time(self, thread: VirtualThread) -> None:
        attempts: list[int] = []

        def open_client() -> str:
            attempts.append(1)
            if len(attempts) == 1:
                raise ConnectionError("refused")
            return "client"

        async def call(value: int, client: str) -> str:
            return client

        caller = Caller(call_to(call, setup=open_client), thread)
        with pytest.raises(RuntimeError, match="open_client failed: ConnectionError: refused"):
            answered(caller, requests(("a", 1)))
        assert answered(caller, requests(("a", 1))) == ["client"]

    def test_the_task_that_enters_the_client_also_exits_it(self, thread: VirtualThread) -> None:
        tasks: list[Any] = []

        class Client:
            async def __aenter__(self) -> Any:
                tasks.append(asyncio.current_task())
                return self

            async def __aexit__(self, *_: object) -> None:
                tasks.append(asyncio.current_task())

        async def call(value: int, client: Client) -> int:
            return value

        caller = Caller(call_to(call, setup=Client), thread)
        answered(caller, requests(("a", 1)))
        caller.close()
        assert tasks[0] is tasks[1]


def test_a_forked_process_has_a_loop_and_a_client_of_its_own() -> None:
    async def call(value: int, client: int) -> int:
        return client

    thread = LoopThread()
    caller = Caller(call_to(call, setup=os.getpid), thread)
    assert answered(caller, requests(("a", 1))) == [os.getpid()]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(answered(caller, requests(("a", 1)))[0] == os.getpid()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"True"
    assert answered(caller, requests(("a", 1))) == [os.getpid()]
    caller.close()
    thread.stop()
