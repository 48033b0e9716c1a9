"""`penstock reset`: shows what an application has left in Kafka and on this machine, and deletes it if confirmed (--yes).

The order matters. Offsets are deleted first and the lanes' topic last: a start in between finds state without offsets and is
refused, and another reset completes an interrupted one. New offsets are written after everything else.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.cli.screen import output_console, shown, table
from penstock.config import Config
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import ConfigError, StateError
from penstock.faults import point
from penstock.history.remains import Remains, fenced, find_remains
from penstock.history.rewind import (
    Goals,
    Move,
    base_of_kept_state,
    base_of_no_state,
    find_moves,
    new_offsets,
    write_offsets,
)
from penstock.history.truth import committed_facts
from penstock.kafka.clients import open_admin
from penstock.kafka.commit import CommitMetadata
from penstock.kafka.reset import Fence, delete_group, delete_topics
from penstock.kafka.topics import Topics
from penstock.records import is_name
from penstock.topology import Topology
from penstock.topology.plan import TopologyFacts
from penstock.topology.plan import facts as plan_facts

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def reset_application(
    application_id: str,
    topology: Topology | None,
    config: Config,
    is_confirmed: bool,
    goals: Goals = MappingProxyType({}),
    keeps_state: bool = False,
) -> None:
    """Show what a reset does to an application, and do it if confirmed.

    With `goals`, the application continues there; with `keeps_state`, nothing else changes.
    """
    if keeps_state and not goals:
        raise ConfigError("--keep-state: say where to continue: add --to-earliest, --to-latest, --to-time or --to-offset.")
    admin = open_admin(config)
    topics = Topics(admin, config.broker_timeout_ms)
    console = output_console()
    remains = find_remains(application_id, topology, config)
    refuse_foreign_group(application_id, remains)
    refuse_unread_topics(goals, topology, committed_facts(application_id, config, topics))
    moves = find_moves(goals, remains.offsets, topics)
    if keeps_state:
        base = base_of_kept_state(application_id, remains.offsets, config, topics)
    else:
        base = base_of_no_state(config)
    written = new_offsets(moves, remains.offsets if keeps_state else {}, topics.seen(goals), base)
    if remains.is_empty and not moves:
        console.print(shown(f"There is nothing to reset for {application_id!r}."))
        return
    if not keeps_state and not remains.is_empty:
        console.print(table(("what", "name", "content"), _rows(remains), f"to delete for {application_id!r}"))
        if remains.similar:
            names = ", ".join(remains.similar)
            console.print(shown(f"These topics are kept, as their owner is unknown: {names}. To delete them, give FILE:APP."))
    if moves:
        console.print(table(("source", "offset", "new offset", "effect"), map(_moved, moves), f"offsets of {application_id!r}"))
    if not is_confirmed:
        done = "deleted" if not moves else "changed"
        console.print(shown(f"Nothing was {done}. Stop the application, then repeat the command with --yes."))
        return
    with fenced(application_id, config, admin, remains) as fence:
        if not keeps_state:
            _delete(application_id, config, admin, remains, fence)
    if written:
        write_offsets(application_id, config, written)
    console.print(shown(f"{application_id!r} is reset: {_next_start(bool(moves), keeps_state)}."))


def _delete(application_id: str, config: Config, admin: AdminClient, remains: Remains, fence: Fence | None) -> None:
    """Delete everything."""
    delete_group(admin, config, application_id)
    point("reset.offsets")
    if fence is not None:
        fence.prove()  # an instance that started before the offsets were deleted has read them, and must be stopped first
    StateDirectory(str(config.state_dir), application_id).remove()
    delete_topics(admin, config, remains.changelogs)
    point("reset.changelogs")
    delete_topics(admin, config, () if remains.lanes is None else (remains.lanes,))


def refuse_unread_topics(goals: Goals, topology: Topology | None, facts: TopologyFacts | None) -> None:
    """Raise if the application does not read a topic of the goals: setting the offsets of a mistyped name has no effect."""
    now = plan_facts(topology, "").sources if topology is not None else []
    sources = {*now, *(facts.sources if facts is not None else ())}
    patterns = [re.compile(source) for source in sources if not is_name(source)]
    for topic in goals:
        if topic not in sources and not any(pattern.fullmatch(topic) for pattern in patterns):
            known = ", ".join(sorted(sources)) or "unknown; give FILE:APP"
            raise ConfigError(f"The application does not read topic {topic!r}. Topics it reads: {known}.")


def _moved(move: Move) -> tuple[str, str, str, str]:
    place = f"{move.topic}-{move.partition}"
    if move.before is None:
        return place, "", f"{move.to:,}", "starts there"
    far = abs(move.to - move.before)
    what = "no change" if not far else f"reads {far:,} offsets again" if move.to < move.before else f"skips {far:,} offsets"
    return place, f"{move.before:,}", f"{move.to:,}", what


def _next_start(is_moved: bool, keeps_state: bool) -> str:
    where = "continues from the new offsets" if is_moved else "begins where its sources say"
    return f"its next start {where}, with {'its state' if keeps_state else 'empty stores'}"


def refuse_foreign_group(application_id: str, remains: Remains) -> None:
    """Raise if the group is not a Penstock application's: a mistyped id must not delete the offsets of another program."""
    if remains.lanes is None and remains.offsets and not any(_is_ours(text) for _, text in remains.offsets.values()):
        raise ConfigError(f"Group {application_id!r} does not belong to a Penstock application. Nothing was deleted.")


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
    rows = [("offsets", topic, f"{len(offsets)} partitions, {sum(offsets):,} in total") for topic, offsets in by_topic.items()]
    rows += [("changelog", name, "content of a store") for name in remains.changelogs]
    if remains.lanes is not None:
        rows.append(("lanes' topic", remains.lanes, "clocks, description of the topology"))
    if remains.directory is not None:
        rows.append(("directory", str(remains.directory), "stores on this machine"))
    return rows
