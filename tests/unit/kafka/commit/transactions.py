"""A broker's transactions in a few lines, and processes that run the real barrier against it, one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from penstock.errors import BrokerError, CommitError, FencedError, PenstockError
from penstock.kafka.commit import CommitMetadata, Committer, Phase, SourceOffset

PATIENCE_MS = 3_000
LOST_CALL_S = 1.0
ROWS_PER_BATCH = 2

Row = tuple[int, int]
"""The epoch that wrote it and the position of its input record."""


@dataclass
class Transaction:
    rows: list[Row] = field(default_factory=list)
    offset: SourceOffset | None = None


@dataclass
class Broker:
    """One transactional id, one output, one source partition. Only a committed transaction is visible."""

    generation: int = 0
    open: Transaction | None = None
    committed_by: int | None = None
    visible: list[Row] = field(default_factory=list)
    offset: SourceOffset | None = None

    def init(self) -> int:
        self.open = None
        self.generation += 1
        return self.generation

    def expire(self) -> None:
        if self.open is not None:
            self.init()

    def _transaction(self, generation: int) -> Transaction:
        self.check(generation)
        self.open = self.open or Transaction()
        return self.open

    def check(self, generation: int) -> None:
        if generation != self.generation:
            raise FencedError("another producer has taken over the id")

    def produce(self, generation: int, rows: Sequence[Row]) -> None:
        self._transaction(generation).rows.extend(rows)

    def send_offset(self, generation: int, offset: SourceOffset) -> None:
        self._transaction(generation).offset = offset

    def commit(self, generation: int) -> None:
        self.check(generation)
        if self.open is not None:
            self.visible += self.open.rows
            self.offset = self.open.offset or self.offset
            self.open, self.committed_by = None, generation
        elif self.committed_by != generation:
            raise CommitError("there is nothing to commit")

    def abort(self, generation: int) -> None:
        self.check(generation)
        self.open = None


class Killed(BaseException):
    """The process is gone; nothing it does after this has an effect."""


class Process:
    """An application that commits its input epoch by epoch; the test decides the outcome of each of its calls."""

    def __init__(self, broker: Broker, renews_producers: bool = True) -> None:
        self.broker = broker
        self.renews_producers = renews_producers
        self.calls: SimpleQueue[str] = SimpleQueue()
        self.outcomes: SimpleQueue[str] = SimpleQueue()
        self.acknowledged: list[int] = []
        self.late_commits: list[int] = []
        self.ended_by: BaseException | None = None
        self.seconds = 0.0
        self.killed = False
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()
        self.waiting_at = self.calls.get()

    @property
    def alive(self) -> bool:
        return self.waiting_at != "end"

    def step(self, outcome: str) -> None:
        assert self.alive, self.ended_by
        self.outcomes.put(outcome)
        self.waiting_at = self.calls.get()

    def call(self, name: str, request: Callable[[], Any]) -> tuple[bool, Any]:
        """Make one request; return whether it was answered, and the answer."""
        if self.killed:
            raise Killed
        self.calls.put(name)
        outcome = self.outcomes.get()
        self.killed = outcome in {"kill before", "kill after"}
        answer = None if outcome in {"kill before", "lose request"} else request()
        if self.killed:
            raise Killed
        if outcome in {"lose request", "lose response"}:
            self.seconds += LOST_CALL_S
            if outcome == "lose request" and name == "commit":
                self.late_commits.append(self.publisher.generation)  # it may still arrive
            return False, None
        return True, answer

    def _live(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - the test checks what ended it
            self.ended_by = error
        self.calls.put("end")

    def _run(self) -> None:
        self.publisher = publisher = ModelPublisher(self)
        publisher.start()
        committed = self.broker.offset
        position = committed.offset if committed else 0
        epoch = CommitMetadata.decode(committed.metadata).epoch if committed else -1
        committer = Committer(publisher, PATIENCE_MS, lambda: self.seconds)
        while True:
            epoch += 1
            rows = [(epoch, position + n) for n in range(2 * ROWS_PER_BATCH)]
            position += len(rows)
            batches = [rows[:ROWS_PER_BATCH], rows[ROWS_PER_BATCH:]]
            about = CommitMetadata(epoch=epoch, incarnation="", fingerprint="", lanes=1, shards=1, high_time=-1, topic_id=None)
            offsets = [SourceOffset("input", 0, position, about.encode())]
            try:
                committer.commit(epoch, batches, offsets)
            except PenstockError:
                assert committer.phase is Phase.FAILED
                self._insist(committer, epoch, batches, offsets)
                raise
            self.acknowledged.append(epoch)

    def _insist(self, committer: Committer, epoch: int, batches: list[list[Row]], offsets: list[SourceOffset]) -> None:
        """Check that a failed barrier refuses the epoch without a request to the broker."""
        try:
            committer.commit(epoch, batches, offsets)
        except CommitError:
            return
        raise AssertionError("a failed barrier accepted another epoch")


class ModelPublisher:
    """Behaves towards the barrier as `TransactionalPublisher` does."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.generation = 0
        self.undelivered = False
        self.asked_to_commit = False
        self.in_doubt = False
        self.sent: SourceOffset | None = None

    def start(self) -> None:
        answered, generation = self.process.call("init", self.process.broker.init)
        if not answered:
            raise BrokerError("no answer")
        self.generation = generation

    def begin(self) -> None:
        if self.in_doubt and self.process.renews_producers:
            self.start()
            if self.process.broker.offset != self.sent:
                raise FencedError("another producer has committed since")
        self.asked_to_commit = self.in_doubt = False

    def produce(self, rows: Sequence[Row]) -> None:
        delivered, _ = self.process.call("produce", lambda: self.process.broker.produce(self.generation, rows))
        self.undelivered = self.undelivered or not delivered

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        (offset,) = offsets
        self.sent = offset
        answered, _ = self.process.call("offsets", lambda: self.process.broker.send_offset(self.generation, offset))
        if not answered:
            raise BrokerError("no answer")

    def commit(self) -> bool:
        if self.undelivered:
            self.abort()
            raise CommitError("rows were not delivered")
        self.asked_to_commit = True
        answered, _ = self.process.call("commit", lambda: self.process.broker.commit(self.generation))
        self.in_doubt = self.in_doubt or not answered
        return answered

    def abort(self) -> None:
        assert not self.asked_to_commit, "an abort after a commit"
        self.process.call("abort", lambda: self.process.broker.abort(self.generation))
