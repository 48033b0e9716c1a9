"""The guards of exactly-once. Each can be turned off in a process under test: without it, a row must go red.

Only the campaign does this, by an environment variable; nothing in the product knows about it. It happens when the topology is
imported, which the driver and every worker do first.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

VARIABLE = "CHAOS_GUARD_OFF"


def turn_off(name: str) -> None:
    """Turn a guard off in this process; an empty name turns none off."""
    if name:
        GUARDS[name]()


def roll_back() -> None:
    """A lane that is rolled back only pretends to be, and keeps what it wrote."""
    from msgspec.structs import replace  # noqa: PLC0415 - needed here only, as in every guard

    from penstock.state.lane import LaneState  # noqa: PLC0415

    def take_back_step(self: Any) -> None:
        self._write(replace(self._head.without_last_step(), digests=self._head.digests), [], [], [])

    LaneState._take_back_step = take_back_step  # type: ignore[method-assign]


def fence() -> None:
    """Every start has a new transactional id, so an older instance is not fenced."""
    from penstock.kafka.publishers import TransactionalPublisher  # noqa: PLC0415

    init = TransactionalPublisher.__init__

    def unfenced(self: Any, config: Any, transactional_id: str, *rest: Any, **named: Any) -> None:
        init(self, config, f"{transactional_id}-{uuid.uuid4().hex}", *rest, **named)

    TransactionalPublisher.__init__ = unfenced  # type: ignore[method-assign]


def epoch_check() -> None:
    """Whatever is on disk passes for the committed epoch."""
    from penstock.epochs import hops, restore, standing  # noqa: PLC0415

    module = cast("Any", restore)
    module.is_usable = lambda *_: True
    module._judge = lambda *_: standing.Found.UP_TO_DATE
    hops.bring_to = lambda state, epoch, stage, is_anew=False: None


def write_ids() -> None:
    """On a cluster: a store at the right epoch passes for the right store, and late tasks may write to it."""
    for module in ("hops", "opened", "sections", "migration"):
        _exchange(f"penstock.epochs.{module}", "require_the_same", lambda state, assigned: None)
    for module in ("standing", "copies", "layouts"):
        _exchange(f"penstock.epochs.{module}", "has_known_commits", _is_at_epoch)
    cast("Any", import_module("penstock.state.engines.engine")).Expected.check = lambda self, value: None


def read_committed() -> None:
    """The driver's consumer reads uncommitted records, which may still be aborted."""
    from penstock.kafka.clients import input_settings  # noqa: PLC0415

    def uncommitted(*given: Any) -> dict[str, Any]:
        return {**input_settings(*given), "isolation.level": "read_uncommitted"}

    _exchange("penstock.runtime.input.feed", "input_settings", uncommitted)


def _is_at_epoch(program: Any, lane: int, head: Any, committed: Any) -> bool:
    return bool(head.epoch >= committed.epoch)


def _exchange(module: str, name: str, value: Any) -> None:
    """Exchange a function of a module; raises if it has none of that name, because the guard would then stay on."""
    names = import_module(module).__dict__
    if name not in names:
        raise AttributeError(f"{module} has no {name}")
    names[name] = value


def metadata_check() -> None:
    """An offset that was committed without metadata passes for one of the same epoch as the others."""
    from penstock.history import past as module  # noqa: PLC0415
    from penstock.history import truth  # noqa: PLC0415

    past = module.past

    def trusting(offsets: Any, *rest: Any) -> Any:
        [text, *_] = [found[1] for found in offsets.values() if found and found[1]] or [""]
        filled = {partition: found and (found[0], found[1] or text) for partition, found in offsets.items()}
        return past(filled, *rest)

    truth.__dict__["past"] = trusting


def one_answer() -> None:
    """The rows that slots answer with are collected twice."""
    import pyarrow as pa  # noqa: PLC0415

    from penstock.engines.one_host import OneHost  # noqa: PLC0415

    run = OneHost.run

    def collected_twice(self: Any, epoch: Any, records: Any, *, is_small: bool) -> Any:
        return pa.concat_tables([run(self, epoch, records, is_small=is_small)] * 2)

    OneHost.run = collected_twice  # type: ignore[method-assign]


def digests() -> None:
    """The content of a store is not verified."""
    from penstock.state.lane import LaneState, chunks  # noqa: PLC0415

    def unverified(self: Any, space: str) -> Any:
        for batch in chunks(self._engine.scan(space, None, None)):
            yield tuple(zip(*batch, strict=True))

    LaneState._verified = unverified  # type: ignore[method-assign]


def offsets_in_the_transaction() -> None:
    """Offsets are committed separately, before the transaction."""
    from penstock.kafka.clients import consumer_settings, open_consumer  # noqa: PLC0415
    from penstock.kafka.publishers import TransactionalPublisher, _partitions  # noqa: PLC0415

    def send_offsets(self: Any, offsets: Any) -> None:
        consumer = open_consumer(consumer_settings(self._config, self._group_id))
        consumer.commit(offsets=_partitions(offsets), asynchronous=False)
        consumer.close()

    TransactionalPublisher.send_offsets = send_offsets  # type: ignore[method-assign]


def fired_timers_are_gone() -> None:
    """A timer that has fired is registered again."""
    from penstock.state.timers import TimerStore, timer_id  # noqa: PLC0415

    due = TimerStore.due

    def due_and_kept(self: Any, kind: int, until: int) -> Any:
        for entry in due(self, kind, until):
            if entry.name:
                self.register(timer_id(entry.key, entry.name), kind, until + 1)
            yield entry

    TimerStore.due = due_and_kept  # type: ignore[method-assign]


def schedules_remember() -> None:
    """A schedule continues from the current time, not from its position."""
    from penstock.timing.schedules import Schedule  # noqa: PLC0415

    def following(self: Any, due: int) -> int:
        now, every = int(time.time() * 1000), int(self.every_ms)
        return max(due, due + (now - due) // every * every) + every

    Schedule.following = following  # type: ignore[method-assign]


def answers_in_order() -> None:
    """Results are in reverse order."""
    from penstock.lanes.calls import PendingCalls  # noqa: PLC0415

    answers = PendingCalls.answers

    def backwards(self: Any, requests: Any) -> Any:
        yield from reversed(list(answers(self, requests)))

    PendingCalls.answers = backwards  # type: ignore[method-assign]


def ledger() -> None:
    """A replay does not know what earlier ones have done."""
    from penstock.kafka.dead_letters import DeadLetters  # noqa: PLC0415
    from penstock.letters import Ledger  # noqa: PLC0415

    DeadLetters.ledger = lambda self, application_id: Ledger(self.topic.topic_id)  # type: ignore[method-assign]


GUARDS: Mapping[str, Callable[[], None]] = {
    guard.__name__: guard
    for guard in (
        roll_back,
        fence,
        epoch_check,
        write_ids,
        read_committed,
        metadata_check,
        one_answer,
        digests,
        offsets_in_the_transaction,
        fired_timers_are_gone,
        schedules_remember,
        answers_in_order,
        ledger,
    )
}
