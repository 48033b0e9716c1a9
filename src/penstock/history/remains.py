"""What an application has in Kafka and on this machine when it does not run, and how it is kept from starting meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import machine
from penstock.config import Config, Guarantee
from penstock.epochs.program import lanes_topic
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import StateError
from penstock.history.truth import committed_facts
from penstock.kafka.clients import open_admin
from penstock.kafka.offsets import Committed, refuse_members
from penstock.kafka.reset import Fence, group_offsets
from penstock.kafka.topics import Topics
from penstock.records import Partition
from penstock.topology import Topology
from penstock.topology.bindings import changelog_topic

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_WATCH_S = 2.0
"""How long the offsets are watched: a running application commits many times in that time."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What an application has left. `similar` are topics named like its changelogs that cannot be attributed to it."""

    offsets: dict[Partition, Committed]
    changelogs: tuple[str, ...]
    lanes: str | None
    directory: Path | None
    similar: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.offsets or self.changelogs or self.lanes or self.directory)


@contextmanager
def fenced(application_id: str, config: Config, admin: AdminClient, remains: Remains) -> Iterator[Fence | None]:
    """Keep instances from committing during the block; raise if one is running. Yields the fence, if there can be one."""
    home = StateDirectory(str(config.state_dir), application_id)
    with ExitStack() as stack:
        stack.enter_context(home.vacant())
        refuse_members(admin, application_id, config.broker_timeout_ms)
        machine.sleep(_WATCH_S)
        if group_offsets(admin, config, application_id) != remains.offsets:
            raise StateError(
                f"{application_id!r} is running: it has committed within the last {_WATCH_S:g} s. Stop it, then repeat the "
                f"command."
            )
        fence = None
        if remains.lanes is not None and config.guarantee is Guarantee.EXACTLY_ONCE:
            fence = stack.enter_context(Fence(config, application_id, remains.lanes))
            fence.prove()
        yield fence


def find_remains(application_id: str, topology: Topology | None, config: Config) -> Remains:
    """Find what an application has left. Its changelogs are those of stores it is known to have, never guessed by name."""
    admin = open_admin(config)
    topics = Topics(admin, config.broker_timeout_ms)
    existing = topics.names()
    facts = committed_facts(application_id, config, topics)
    stores = {*(facts.stores if facts else ()), *(topology.stores if topology else ())}
    own, lanes = {changelog_topic(application_id, store) for store in stores} & existing, lanes_topic(application_id)
    similar = {name for name in existing if name.startswith(f"{application_id}-") and name.endswith("-changelog")}
    directory = StateDirectory(str(config.state_dir), application_id).root
    return Remains(
        group_offsets(admin, config, application_id),
        tuple(sorted(own - {lanes})),
        lanes if lanes in existing else None,
        directory if directory.is_dir() else None,
        tuple(sorted(similar - own - {lanes})) if facts is None else (),
    )
