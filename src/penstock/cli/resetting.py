"""`penstock reset`: shows what an application has left in Kafka and on this machine, and deletes it if that is meant.

The order is the point. Offsets go first and the lanes' topic last: a start in between finds state without offsets and refuses,
and a reset that was cut short is finished by another one.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.barrier import CommitMetadata
from penstock.cli.screen import answers, shown, table
from penstock.config import Config, Guarantee
from penstock.epochs.home import Home
from penstock.epochs.program import changelog_topic, lanes_topic
from penstock.errors import ConfigError, StateError
from penstock.faults import point
from penstock.kafka.clients import open_admin
from penstock.kafka.offsets import Committed, Partition, refuse_members
from penstock.kafka.reset import Fence, delete_group, delete_topics, group_offsets
from penstock.kafka.topics import Topics
from penstock.running.truth import committed_facts
from penstock.topology import Topology

_WATCH_S = 2.0
"""So long the offsets are watched: an application that works commits many times meanwhile."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What an application has left. `similar` are topics that look like its own, but of which nothing is known."""

    offsets: dict[Partition, Committed]
    changelogs: tuple[str, ...]
    lanes: str | None
    directory: Path | None
    similar: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.offsets or self.changelogs or self.lanes or self.directory)


def reset_application(application_id: str, topology: Topology | None, config: Config, is_meant: bool) -> None:
    """Show what there is, and delete it if that is meant."""
    admin = open_admin(config)
    console = answers()
    remains = find_remains(application_id, topology, config)
    refuse_strangers(application_id, remains)
    if remains.is_nothing:
        console.print(shown(f"There is nothing to reset of {application_id!r}."))
        return
    console.print(table(("what", "name", "holds"), _rows(remains), f"of {application_id!r}"))
    if remains.similar:
        console.print(shown(f"Not touched, because nothing says whose they are: {', '.join(remains.similar)}. Name FILE:APP."))
    if not is_meant:
        console.print(shown("Nothing was deleted. Stop the application, then add --yes to delete all of this."))
        return
    home = Home(str(config.state_dir), application_id)
    with ExitStack() as stack:
        stack.enter_context(home.vacant())
        refuse_members(admin, application_id, config.broker_timeout_ms)
        time.sleep(_WATCH_S)
        if group_offsets(admin, config, application_id) != remains.offsets:
            raise StateError(
                f"{application_id!r} runs: it has committed within the last {_WATCH_S:g} s. Stop it, then reset again"
            )
        fence = None
        if remains.lanes is not None and config.guarantee is Guarantee.EXACTLY_ONCE:
            fence = stack.enter_context(Fence(config, application_id, remains.lanes))
            fence.prove()
        delete_group(admin, config, application_id)
        point("reset.offsets")
        if fence is not None:
            fence.prove()  # who started before the offsets were gone has read them, and has to be stopped first
        home.remove()
        delete_topics(admin, config, remains.changelogs)
        point("reset.changelogs")
        delete_topics(admin, config, () if remains.lanes is None else (remains.lanes,))
    console.print(shown(f"{application_id!r} is reset: its next start begins where its sources say, with empty stores."))


def find_remains(application_id: str, topology: Topology | None, config: Config) -> Remains:
    """What there is of an application: topics by the stores it is known to have had, never by their looks alone."""
    admin = open_admin(config)
    topics = Topics(admin, config.broker_timeout_ms)
    there = topics.names()
    facts = committed_facts(application_id, config, topics)
    stores = {*(facts.stores if facts else ()), *(topology.stores if topology else ())}
    own, lanes = {changelog_topic(application_id, store) for store in stores} & there, lanes_topic(application_id)
    looks = {name for name in there if name.startswith(f"{application_id}-") and name.endswith("-changelog")}
    directory = Home(str(config.state_dir), application_id).root
    return Remains(
        group_offsets(admin, config, application_id),
        tuple(sorted(own - {lanes})),
        lanes if lanes in there else None,
        directory if directory.is_dir() else None,
        tuple(sorted(looks - own - {lanes})) if facts is None else (),
    )


def refuse_strangers(application_id: str, remains: Remains) -> None:
    """Refuse a group that is not an application's: a mistyped id must not cost somebody else's offsets."""
    if remains.lanes is None and remains.offsets and not any(_is_ours(text) for _, text in remains.offsets.values()):
        raise ConfigError(f"the group {application_id!r} is not one of a Penstock application: nothing was deleted")


def _is_ours(text: str) -> bool:
    try:
        CommitMetadata.decode(text)
    except StateError:
        return False
    return True


def _rows(remains: Remains) -> list[tuple[str, str, str]]:
    by_topic: dict[str, list[int]] = {}
    for (topic, _), (offset, _) in sorted(remains.offsets.items()):
        by_topic.setdefault(topic, []).append(offset)
    rows = [("offsets", topic, f"{len(offsets)} partitions, {sum(offsets):,} in all") for topic, offsets in by_topic.items()]
    rows += [("changelog", name, "a store's content") for name in remains.changelogs]
    if remains.lanes is not None:
        rows.append(("lanes' topic", remains.lanes, "clocks, the topology's facts"))
    if remains.directory is not None:
        rows.append(("directory", str(remains.directory), "stores on this machine"))
    return rows
