"""Input that cannot be read, that a transaction blocks, or that was replaced."""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from verification.chaos.load import GHOSTS, POISONS, Upstream, truncated
from verification.chaos.payments import encoded
from verification.chaos.rows.row import Row
from verification.chaos.trial import FIRE_S, PARTITIONS, Conditions, Trial
from verification.harness import topics as kafka
from verification.harness.processes import HarnessError
from verification.harness.topics import Sent

HANG_S = 10
REFUSE_S = 60
ADMIN_S = 30
PROCESSING, STATE, COMMIT = 10, 13, 21
"""Exit codes, by kind of error."""


def poison_kept(trial: Trial) -> None:
    """One record in a hundred is bad: it becomes a dead letter, or is dropped, exactly once, whatever is killed meanwhile."""
    for point in ("barrier.mid_produce:7:kill", "barrier.after_commit:7:kill", "lane.after_write:19:kill"):
        trial.kill_at(point)
    trial.finish()


def poison_refused(trial: Trial) -> None:
    """A bad record ends the application at every start, and nothing after it is committed; another handler skips it."""
    trial.start()
    trial.see_progress()
    trial.load.pause()
    trial.load.send_poison(truncated, partition=1)
    (poison,) = trial.load.poisonous
    trial.load.send(50)
    for attempt in range(2):
        trial.wanted += 1
        if attempt:
            trial.start()
        must_refuse(trial, PROCESSING, f"{trial.topics.input}-{poison.partition} at offset {poison.offset}")
        trial.fired += 1
        offset = trial.observer.offsets()[poison.partition]
        if offset > poison.offset:
            trial.violate("skipped", "input", f"{offset} is committed, but {poison.offset} could not be read")
        trial.check_cut()
    trial.application.change(CHAOS_ON_ERROR="continue")
    trial.load.go_on()
    trial.come_back()
    trial.finish()


def upstream_hangs(ends_well: bool, trial: Trial) -> None:
    """Another application's transaction stays open in the input: nothing after it may be visible until it has ended."""
    upstream = Upstream(trial.world.broker.bootstrap_servers, trial.topics.input, PARTITIONS)
    trial.start()
    trial.see_progress()
    for _ in range(2):
        with trial.hurting():
            upstream.begin()
            hidden = trial.load.last_number + 1
            time.sleep(HANG_S)
            if trial.reader.highest >= hidden:
                trial.violate(
                    "uncommitted", "input", f"{trial.reader.highest} was read behind an open transaction (from {hidden} on)"
                )
            upstream.end(ends_well)
            trial.upstream = upstream.payments
    trial.finish()


def transaction_times_out(trial: Trial) -> None:
    """The application stalls in its transaction until the broker aborts it, before and after the offsets are sent."""
    for point in ("barrier.mid_produce", "barrier.after_offsets"):
        trial.start(f"{point}:6:sleep=9")
        with trial.hurting():
            trial.tend(f"{point} fires", lambda: trial.application.fired > 0, FIRE_S)
        trial.application.stop()
    trial.finish()


def input_made_again(trial: Trial) -> None:
    """The input is deleted and created again, with more records than were read: they are new, and none may be skipped.

    Kafka deletes a group's offsets together with their topic, so this looks like lost offsets.
    """
    servers, topic = trial.world.broker.bootstrap_servers, trial.topics.input
    ends = come_to_rest(trial)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(ADMIN_S)
    kafka.create(servers, topic, PARTITIONS)
    values = [encoded(number=GHOSTS + n, step=n, group="ghosts", amount=1) for n in range(max(ends.values()) + 100)]
    kafka.produce(servers, topic, [Sent(key=b"ghost", value=value, partition=p) for p in range(PARTITIONS) for value in values])
    refused_start(trial, STATE, trial.topics.application_id)


def offsets_lost(trial: Trial) -> None:
    """The group's offsets are deleted, but the state is not, so this is not a first start."""
    come_to_rest(trial)
    admin = AdminClient({"bootstrap.servers": trial.world.broker.bootstrap_servers})
    group = trial.topics.application_id
    admin.delete_consumer_groups([group])[group].result(ADMIN_S)
    refused_start(trial, STATE, group)


def offsets_moved(trial: Trial) -> None:
    """One of the group's offsets is moved back by hand, but the state is not."""
    ends = come_to_rest(trial)
    admin = AdminClient({"bootstrap.servers": trial.world.broker.bootstrap_servers})
    back = [TopicPartition(trial.topics.input, 0, ends[0] // 2)]
    group = trial.topics.application_id
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, back)])[group].result(ADMIN_S)
    refused_start(trial, STATE, trial.topics.input)


def must_refuse(trial: Trial, expected: int, named: str) -> None:
    """Check that the application ends by itself, with this exit code and a message that contains this name."""
    try:
        code = trial.application.wait(REFUSE_S)
    except HarnessError:
        trial.violate("exit", "application", f"still runs, but should have ended with {expected}")
        return
    if code != expected:
        trial.violate("exit", "application", f"{code}, not {expected}; see {trial.application.log}")
    if named not in trial.application.log.read_text(errors="replace"):
        trial.violate("unnamed", "application", f"ended without mentioning {named}; see {trial.application.log}")


def come_to_rest(trial: Trial) -> dict[int, int]:
    """Let the application process all input, and stop it; return the ends of its input."""
    trial.start()
    trial.see_progress()
    trial.rest()
    trial.application.stop()
    return trial.observer.input_ends()


def refused_start(trial: Trial, expected: int, named: str) -> None:
    """Check that a start refuses to run, and has not written anything."""
    before = trial.observer.records()
    trial.wanted += 1
    trial.start()
    trial.fired += 1
    must_refuse(trial, expected, named)
    if trial.observer.records() != before:
        trial.violate("surplus", "outputs", "a start that had to refuse has written records")


ROWS = (
    Row("poison-dead-letter", poison_kept, Conditions(on_error="dead_letter", poison=POISONS)),
    Row("poison-continue", poison_kept, Conditions(on_error="continue", poison=POISONS)),
    Row("poison-fail", poison_refused, Conditions(exits=frozenset({PROCESSING}))),
    Row("upstream-aborts", partial(upstream_hangs, False)),
    Row("upstream-commits", partial(upstream_hangs, True)),
    Row(
        "transaction-timeout",
        transaction_times_out,
        Conditions(settings={"PENSTOCK_TRANSACTION_TIMEOUT": "5s"}, exits=frozenset({COMMIT})),
    ),
    Row("input-made-again", input_made_again),
    Row("offsets-lost", offsets_lost),
    Row("offsets-moved", offsets_moved),
)
