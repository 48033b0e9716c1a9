"""Changes underneath the application: lanes at every start, partitions of the input, changelogs, outdated stores."""

from __future__ import annotations

import random
import time
from functools import partial

from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.epochs.program import lanes_topic
from verification.chaos.application import Part
from verification.chaos.load import huge, truncated
from verification.chaos.rows.inputs import ADMIN_S, come_to_rest, refused_start
from verification.chaos.rows.kills import WAYS
from verification.chaos.rows.row import QUICK, Row
from verification.chaos.trial import PARTITIONS, PROGRESS_S, Conditions, Trial
from verification.chaos.waiting.trial import WaitingTrial
from verification.harness.processes import wait_until

RESTARTS = 20
MOST_LANES = 8
TOPIC = 12
"""The exit code of `TopicError`."""
PICKED_UP_S = 30 + PROGRESS_S


def lanes_at_every_start(restarts: int, trial: Trial) -> None:
    """Another number of lanes at every start, from one to eight, alternately after kills and stops."""
    chooser = random.Random(f"{trial.world.seed} {trial.name}")
    lanes = 2
    trial.start()
    trial.see_progress()
    for number in range(restarts):
        if number % 2:
            trial.application.stop()
            trial.happened()
        else:
            trial.kill(chooser.choice((Part.DRIVER, Part.ALL, Part.JVM)))
        lanes = chooser.choice([other for other in range(1, MOST_LANES + 1) if other != lanes])
        trial.come_back(PENSTOCK_LANES=str(lanes), **chooser.choice(WAYS))
        time.sleep(chooser.uniform(0, 1))
        if number % 5 == 0:
            trial.kill(Part.ALL)
            trial.check_cut()
            trial.come_back(PENSTOCK_LANES=str(lanes))
    trial.finish()


def partitions_added(trial: Trial) -> None:
    """The input gets more partitions while it is read, and the application is killed around the moment it detects them."""
    admin = AdminClient({"bootstrap.servers": trial.world.broker.bootstrap_servers})
    topic = trial.topics.input
    trial.start()
    trial.see_progress()
    for partition, moment_s in enumerate((None, 0.5, 8.0), start=PARTITIONS):
        admin.create_partitions([NewPartitions(topic, partition + 1)])[topic].result(ADMIN_S)
        wait_until("the partition has a leader", partial(_has_leader, admin, topic, partition), ADMIN_S)
        trial.load.grow(partition + 1)
        if moment_s is not None:
            time.sleep(moment_s)
            trial.kill(Part.ALL)
        with trial.hurting():
            trial.tend("the partition is read", partial(_is_read, trial, partition), PICKED_UP_S)
    trial.kill(Part.DRIVER)
    trial.check_cut()
    trial.finish()


def _is_read(trial: Trial, partition: int) -> bool:
    return trial.observer.offsets().get(partition, 0) > 0


def _has_leader(admin: AdminClient, topic: str, partition: int) -> bool:
    found = admin.list_topics(topic, timeout=ADMIN_S).topics[topic].partitions
    return partition in found and found[partition].leader >= 0


def poison_of_any_size(trial: Trial) -> None:
    """Bad records, some of half a megabyte, among small ones, where an epoch holds about two: each is one dead letter."""
    for point in ("barrier.mid_produce:7:kill", "lane.after_write:19:kill"):
        trial.kill_at(point)
    trial.finish()


def changelog_deleted(trial: Trial) -> None:
    """A changelog is deleted while nothing runs: its state is nowhere else, so a start must refuse."""
    come_to_rest(trial)
    admin = AdminClient({"bootstrap.servers": trial.world.broker.bootstrap_servers})
    changelog = trial.topics.changelog("sums")
    admin.delete_topics([changelog])[changelog].result(ADMIN_S)
    refused_start(trial, TOPIC, changelog)
    trial.files.delete()
    refused_start(trial, TOPIC, changelog)


def from_before_a_reset(trial: Trial) -> None:
    """The application is reset and reads its input from the beginning; then stores from before the reset come back."""
    trial.start()
    trial.see_progress()
    trial.application.stop()
    backup = trial.directory / "before"
    trial.files.copy_to(backup)
    _reset(trial)
    trial.come_back()
    trial.see_progress()
    for _ in range(2):
        trial.kill(Part.ALL)
        trial.files.replace_by(backup)
        trial.happened()
        trial.come_back()
    trial.finish()


def _reset(trial: Trial) -> None:
    """Do what `penstock reset` does to Kafka and to the files of this machine; and begin new outputs."""
    admin = AdminClient({"bootstrap.servers": trial.world.broker.bootstrap_servers})
    application = trial.topics.application_id
    admin.delete_consumer_groups([application])[application].result(ADMIN_S)
    own = [topic for topic in admin.list_topics(timeout=ADMIN_S).topics if topic.startswith(application)]
    changelogs = [topic for topic in own if topic.endswith("-changelog")]
    assert lanes_topic(application) in changelogs
    for deleted in admin.delete_topics(changelogs).values():
        deleted.result(ADMIN_S)
    trial.files.delete()
    trial.begin_outputs_anew()


ROWS = (
    Row("lanes-changed", partial(lanes_at_every_start, RESTARTS)),
    Row("lanes-changed-waiting", partial(lanes_at_every_start, RESTARTS), trial=WaitingTrial),
    Row("partitions-added", partitions_added),
    Row(
        "poison-sizes",
        poison_of_any_size,
        Conditions(on_error="dead_letter", poison=(huge, truncated), settings={"PENSTOCK_MAX_EPOCH_BYTES": "2000000"}),
    ),
    Row("changelog-deleted", changelog_deleted, campaigns=("full", QUICK)),
    Row("stores-from-before-a-reset", from_before_a_reset),
)
