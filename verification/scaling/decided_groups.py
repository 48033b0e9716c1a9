"""A model of groups with a decision record (docs/decisions/0055): a transaction for each group of writers, one record decides.

No Kafka, no clock: a world is a value, and `moves` yields all that may happen next, one request to a broker at a time. A driver
that has died is one that is never chosen again, so crashes need no move of their own; one that is chosen late is a zombie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Bug(Enum):
    """Mistakes that can be planted."""

    COMMIT_BEFORE_DECISION = "groups commit before the decision"
    ABORT_AFTER_DECISION = "a start aborts what is open, decided or not"
    DECIDE_EARLY = "the decision does not wait for all groups"
    FINISH_WITHOUT_IDENTITY = "a start commits whatever the ids of a decision have open"
    READ_BEFORE_FENCE = "a start reads the last decision before it fences the driver"
    READ_PAST_OWN_RECORD = "a start also reads what follows its own record"
    REUSED_IDS = "all starts use the same transactional ids"
    RETRY_WITHOUT_ABORT = "a second attempt writes into the transactions of the first"
    SILENT_HOLE = "a start does not compare what is visible with what was decided"
    TRUST_ANSWERS = "a start takes a refused commit for lost rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much may happen, and the planted bug, if any."""

    groups: int = 2
    epochs: int = 2
    drivers: int = 2
    timeouts: int = 1
    """How many transactions the brokers may abort because they are too old."""
    retries: int = 1
    """How many attempts of epochs may fail before their decision, because a writer has died."""
    bug: Bug | None = None


class Row(NamedTuple):
    """What a group writes in an epoch, as its last row in a partition of its own. No two attempts have the same number."""

    epoch: int
    attempt: int


class TransactionalId(NamedTuple):
    """What the brokers know of a transactional id. Each end and each `InitProducerId` begins a new generation."""

    generation: int = 0
    open: Row | None = None
    visible: tuple[Row, ...] = ()

    def ended(self, *, is_committed: bool) -> TransactionalId:
        """After the end of its transaction, if it has one."""
        rows = (self.open,) if is_committed and self.open is not None else ()
        return TransactionalId(self.generation + 1, None, self.visible + rows)


class Decision(NamedTuple):
    """A record of the driver's transaction, which also has the epoch's offsets: the transactions that belong to the epoch."""

    start: int
    epoch: int
    attempt: int
    generations: tuple[int, ...]
    """Of the start's transactional ids, by group."""


class Identity(NamedTuple):
    """One transaction of a group."""

    start: int
    group: int
    generation: int


class Kafka(NamedTuple):
    """All that outlives drivers."""

    fence: int = 0
    """The generation of the driver's own transactional id."""
    proposed: Decision | None = None
    """In the driver's open transaction."""
    decisions: tuple[Decision, ...] = ()
    begun: tuple[int, ...] = ()
    """For each start, how many decisions precede its record in the log."""
    ids: tuple[tuple[TransactionalId, ...], ...] = ()
    """By start and group."""
    expired: frozenset[Identity] = frozenset()
    """Transactions that have timed out. Brokers do not keep this; it is here to judge what is lost."""

    def with_id(self, start: int, group: int, changed: TransactionalId) -> Kafka:
        """With one id changed."""
        row = self.ids[start]
        row = (*row[:group], changed, *row[group + 1 :])
        return self._replace(ids=(*self.ids[:start], row, *self.ids[start + 1 :]))


class Phase(Enum):
    """What a driver does next."""

    FENCE = "fence the older driver"
    BEGIN = "append the record of its start, and read the log up to it"
    READ = "read the log past its record"
    FINISH = "commit what was decided"
    SWEEP = "abort what older starts have open"
    VERIFY = "compare what is visible with what was decided"
    WRITE = "write the epoch's rows"
    PROPOSE = "write decision and offsets"
    DECIDE = "commit decision and offsets"
    COMPLETE = "commit the epoch's rows"
    ABORT = "abort a failed attempt"
    DONE = "all epochs are committed"
    HOLE = "the application does not start: decided rows are lost"
    ENDED = "another driver has taken over, or a transaction is gone: start again"


class Driver(NamedTuple):
    """A process that drives the application, alive or not."""

    phase: Phase = Phase.FENCE
    fence: int = 0
    start: int = -1
    known: int = -1
    """The place of the last decision that it has read or made; -1 if there is none."""
    todo: frozenset[int] = frozenset()
    """Groups that the phase has not done yet, in any order; in `SWEEP` all ids of older starts, in their order."""
    held: tuple[int, ...] = ()
    """The generations of its ids."""
    tries: int = 0


class World(NamedTuple):
    """Everything at one moment, and how much may still go wrong."""

    timeouts: int
    retries: int
    kafka: Kafka = Kafka()
    drivers: tuple[Driver, ...] = ()


Step = tuple[str, Kafka, Driver]
Move = tuple[str, World]


def first(size: Size) -> World:
    """Return the world before the first start."""
    return World(size.timeouts, size.retries)


def moves(world: World, size: Size) -> Iterator[Move]:
    """Yield all that may happen next."""
    for number, driver in enumerate(world.drivers):
        for said, kafka, after in Steps(size, world.kafka, driver).next():
            yield f"driver {number}: {said}", world._replace(kafka=kafka, drivers=_with(world.drivers, number, after))
        if world.retries and driver.phase is Phase.WRITE and len(driver.todo) < size.groups:
            failed = _failed(driver, size)
            yield (
                f"driver {number}: a writer dies",
                world._replace(retries=world.retries - 1, drivers=_with(world.drivers, number, failed)),
            )
    if len(world.drivers) < size.drivers:
        known = len(world.kafka.decisions) - 1 if size.bug is Bug.READ_BEFORE_FENCE else -1
        yield "a driver starts", world._replace(drivers=(*world.drivers, Driver(known=known)))
    if world.timeouts:
        for said, kafka in _timeouts(world.kafka):
            yield said, world._replace(kafka=kafka, timeouts=world.timeouts - 1)


def _with(drivers: tuple[Driver, ...], number: int, after: Driver) -> tuple[Driver, ...]:
    return (*drivers[:number], after, *drivers[number + 1 :])


def _failed(driver: Driver, size: Size) -> Driver:
    phase = Phase.WRITE if size.bug is Bug.RETRY_WITHOUT_ABORT else Phase.ABORT
    return driver._replace(phase=phase, todo=frozenset(range(size.groups)), tries=driver.tries + 1)


def _timeouts(kafka: Kafka) -> Iterator[tuple[str, Kafka]]:
    if kafka.proposed is not None:
        yield "the driver's transaction times out", kafka._replace(proposed=None, fence=kafka.fence + 1)
    for start, row in enumerate(kafka.ids):
        for group, found in enumerate(row):
            if found.open is not None:
                said = f"the transaction of group {group} of start {start} times out"
                after = kafka.with_id(start, group, found.ended(is_committed=False))
                yield said, after._replace(expired=kafka.expired | {Identity(start, group, found.generation)})


class Steps:
    """What one driver may do next."""

    def __init__(self, size: Size, kafka: Kafka, driver: Driver) -> None:
        self._size = size
        self._bug = size.bug
        self._kafka = kafka
        self._driver = driver

    def next(self) -> Iterator[Step]:
        """Yield each next step with what it leaves behind."""
        driver, phase = self._driver, self._driver.phase
        if phase in {Phase.DONE, Phase.HOLE, Phase.ENDED}:
            return
        if phase in {Phase.FINISH, Phase.WRITE, Phase.COMPLETE, Phase.ABORT}:
            of_group = {
                Phase.FINISH: self._finish,
                Phase.WRITE: self._write,
                Phase.COMPLETE: self._complete,
                Phase.ABORT: self._abort,
            }[phase]
            for group in sorted(driver.todo):
                yield f"{phase.value}, group {group}", *of_group(group, driver.todo - {group})
            if phase is Phase.WRITE and self._bug is Bug.DECIDE_EARLY:
                yield "decide early", self._kafka, driver._replace(phase=Phase.PROPOSE)
            return
        alone = {
            Phase.FENCE: self._fence,
            Phase.BEGIN: self._begin,
            Phase.READ: self._read,
            Phase.SWEEP: self._sweep,
            Phase.VERIFY: self._verify,
            Phase.PROPOSE: self._propose,
            Phase.DECIDE: self._decide,
        }[phase]
        yield phase.value, *alone()

    # ---- a start --------------------------------------------------------------------------------------------------

    def _fence(self) -> tuple[Kafka, Driver]:
        fence = self._kafka.fence + 1
        return self._kafka._replace(fence=fence, proposed=None), self._driver._replace(phase=Phase.BEGIN, fence=fence)

    def _begin(self) -> tuple[Kafka, Driver]:
        kafka, driver = self._kafka, self._driver
        if driver.fence != kafka.fence:
            return self._end()
        begun = (*kafka.begun, len(kafka.decisions))
        fresh = () if self._bug is Bug.REUSED_IDS and kafka.ids else ((TransactionalId(),) * self._size.groups,)
        driver = driver._replace(start=len(kafka.begun), held=(0,) * self._size.groups)
        kafka = kafka._replace(begun=begun, ids=kafka.ids + fresh)
        if self._bug is Bug.READ_PAST_OWN_RECORD:
            return kafka, driver._replace(phase=Phase.READ)
        known = driver.known if self._bug is Bug.READ_BEFORE_FENCE else begun[-1] - 1
        return kafka, self._recovering(kafka, driver._replace(known=known))

    def _read(self) -> tuple[Kafka, Driver]:
        known = len(self._kafka.decisions) - 1
        return self._kafka, self._recovering(self._kafka, self._driver._replace(known=known))

    def _recovering(self, kafka: Kafka, driver: Driver) -> Driver:
        if driver.known < 0 or self._bug is Bug.ABORT_AFTER_DECISION:
            return self._sweeping(kafka, driver)
        return driver._replace(phase=Phase.FINISH, todo=self._all())

    def _finish(self, group: int, todo: frozenset[int]) -> tuple[Kafka, Driver]:
        kafka, driver = self._kafka, self._driver
        decided = kafka.decisions[driver.known]
        start, named = home(decided.start, self._size), decided.generations[group]
        found = kafka.ids[start][group]
        if self._bug is Bug.FINISH_WITHOUT_IDENTITY or found.generation == named:
            kafka = kafka.with_id(start, group, found.ended(is_committed=True))
        elif self._bug is Bug.TRUST_ANSWERS and found.generation > named + 1:  # brokers know only how the last one has ended
            return kafka, driver._replace(phase=Phase.HOLE)
        driver = driver._replace(todo=todo)  # refused or not: what is visible will tell
        return kafka, driver if todo else self._sweeping(kafka, driver)

    def _sweeping(self, kafka: Kafka, driver: Driver) -> Driver:
        """Older starts from the one on that has decided last: before its first decision it has swept those before it."""
        oldest = kafka.decisions[driver.known].start if driver.known >= 0 else 0
        starts = {*range(oldest, driver.start)}
        if self._bug is Bug.READ_PAST_OWN_RECORD:
            starts = {*range(len(kafka.begun))} - {driver.start}
        groups = self._size.groups
        todo = frozenset(start * groups + group for start in starts for group in range(groups))
        if self._bug is Bug.REUSED_IDS:
            todo = self._all()
        return driver._replace(phase=Phase.SWEEP if todo else Phase.VERIFY, todo=todo)

    def _sweep(self) -> tuple[Kafka, Driver]:
        driver, place = self._driver, min(self._driver.todo)
        start, group = divmod(place, self._size.groups)
        swept = self._kafka.ids[start][group].ended(is_committed=False)
        todo = driver.todo - {place}
        driver = driver._replace(phase=Phase.SWEEP if todo else Phase.VERIFY, todo=todo)
        if self._bug is Bug.REUSED_IDS:
            driver = driver._replace(held=_changed(driver.held, group, swept.generation))
        return self._kafka.with_id(start, group, swept), driver

    def _verify(self) -> tuple[Kafka, Driver]:
        kafka, known = self._kafka, self._driver.known
        if known >= 0 and self._bug is not Bug.SILENT_HOLE and not is_whole(kafka, kafka.decisions[known], self._size):
            return kafka, self._driver._replace(phase=Phase.HOLE)
        return kafka, self._next_epoch(self._driver)

    # ---- an epoch -------------------------------------------------------------------------------------------------

    def _next_epoch(self, driver: Driver) -> Driver:
        if self._epoch(driver) > self._size.epochs:
            return driver._replace(phase=Phase.DONE)
        return driver._replace(phase=Phase.WRITE, todo=self._all())

    def _write(self, group: int, todo: frozenset[int]) -> tuple[Kafka, Driver]:
        kafka, driver = self._kafka, self._driver
        start = home(driver.start, self._size)
        found = kafka.ids[start][group]
        if found.generation != driver.held[group]:
            return self._end()
        if found.open is None:  # else a broker takes it for a duplicate, and drops it
            kafka = kafka.with_id(start, group, found._replace(open=Row(self._epoch(driver), self._attempt(driver))))
        driver = driver._replace(todo=todo)
        if todo:
            return kafka, driver
        if self._bug is Bug.COMMIT_BEFORE_DECISION:
            return kafka, driver._replace(phase=Phase.COMPLETE, todo=self._all())
        return kafka, driver._replace(phase=Phase.PROPOSE)

    def _propose(self) -> tuple[Kafka, Driver]:
        kafka, driver = self._kafka, self._driver
        if driver.fence != kafka.fence:
            return self._end()
        decision = Decision(driver.start, self._epoch(driver), self._attempt(driver), driver.held)
        return kafka._replace(proposed=decision), driver._replace(phase=Phase.DECIDE)

    def _decide(self) -> tuple[Kafka, Driver]:
        kafka, driver = self._kafka, self._driver
        if driver.fence != kafka.fence or kafka.proposed is None:
            return self._end()
        decisions = (*kafka.decisions, kafka.proposed)
        driver = driver._replace(phase=Phase.COMPLETE, todo=self._all(), known=len(decisions) - 1)
        kafka = kafka._replace(proposed=None, decisions=decisions)
        return kafka, self._next_epoch(driver) if self._bug is Bug.COMMIT_BEFORE_DECISION else driver

    def _complete(self, group: int, todo: frozenset[int]) -> tuple[Kafka, Driver]:
        kafka, driver = self._ended(group, todo, is_committed=True)
        if todo or driver.phase is Phase.ENDED:
            return kafka, driver
        if self._bug is Bug.COMMIT_BEFORE_DECISION:
            return kafka, driver._replace(phase=Phase.PROPOSE)
        return kafka, self._next_epoch(driver)

    def _abort(self, group: int, todo: frozenset[int]) -> tuple[Kafka, Driver]:
        kafka, driver = self._ended(group, todo, is_committed=False)
        return kafka, driver if todo or driver.phase is Phase.ENDED else self._next_epoch(driver)

    def _ended(self, group: int, todo: frozenset[int], *, is_committed: bool) -> tuple[Kafka, Driver]:
        kafka, driver = self._kafka, self._driver
        start = home(driver.start, self._size)
        found = kafka.ids[start][group]
        if found.generation != driver.held[group] or (is_committed and found.open is None):
            return self._end()
        held = _changed(driver.held, group, found.generation + 1)
        return kafka.with_id(start, group, found.ended(is_committed=is_committed)), driver._replace(todo=todo, held=held)

    def _end(self) -> tuple[Kafka, Driver]:
        """Refused: whether anything is lost, the next start finds out."""
        return self._kafka, self._driver._replace(phase=Phase.ENDED)

    def _all(self) -> frozenset[int]:
        return frozenset(range(self._size.groups))

    @staticmethod
    def _epoch(driver: Driver) -> int:
        return driver.known + 2  # the first decision, at place 0, is that of epoch 1

    def _attempt(self, driver: Driver) -> int:
        return driver.start * (self._size.retries + 1) + driver.tries


def _changed(held: tuple[int, ...], group: int, generation: int) -> tuple[int, ...]:
    return (*held[:group], generation, *held[group + 1 :])


def home(start: int, size: Size) -> int:
    """Return whose ids a start uses: its own."""
    return 0 if size.bug is Bug.REUSED_IDS else start


def is_whole(kafka: Kafka, decision: Decision, size: Size) -> bool:
    """Whether readers see what every group wrote for the decision."""
    row = Row(decision.epoch, decision.attempt)
    return all(row in found.visible for found in kafka.ids[home(decision.start, size)])
