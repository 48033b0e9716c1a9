"""What a start opens before it touches anything that is committed: clients, the settings of the first start, and processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.engines.exchanging import Ending
from penstock.epochs.program import GlobalTopics
from penstock.history.shards import settled
from penstock.kafka.clients import reach_brokers
from penstock.kafka.topics import Topics
from penstock.observation import logs
from penstock.runtime.hosting.engine import Hosting, opening_hosts
from penstock.runtime.hosting.set_up import TaskSetUp
from penstock.runtime.instance import Instance

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class Opened(NamedTuple):
    """The instance with its final settings, its clients, and where it runs."""

    instance: Instance
    admin: AdminClient
    topics: Topics
    hosting: Hosting


def opened(
    instance: Instance,
    global_topics: Callable[[], GlobalTopics | None],
    ending: Callable[[], Ending | None],
    closers: list[Callable[[], None]],
) -> Opened:
    """Open all of it; `closers` gets what closes it. The two functions are those of `TaskSetUp`."""
    hosts = opening_hosts(instance.config, instance.program, instance.topology)
    closers.append(hosts.close)
    admin = reach_brokers(instance.config)
    topics = Topics(admin, instance.config.broker_timeout_ms)
    final = instance.with_settings(settled(instance.truth(topics), instance.config, topics))
    prepare = logs.worker_set_up(final.config, final.labels)
    hosting = hosts.host(final.program, TaskSetUp(prepare, final.patience_s, global_topics, ending))
    closers.append(hosting.close)
    hosting.engine.start()
    final.recorder.whereabouts = lambda: hosting.engine.whereabouts
    return Opened(final, admin, topics, hosting)
