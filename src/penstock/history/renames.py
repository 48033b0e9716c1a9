"""Renames at a start: the changelog of a store is copied to that of its new name, before lanes are restored.

The copy is made in transactions. The first one notes in the topology's facts that the store is partly copied, so that no other
version of the application uses either of the two; the last one commits the facts without the note. A start that follows a crash
copies everything again: nothing has changed the old store meanwhile, so that the last row of each key is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing

from penstock import faults
from penstock.config import Config
from penstock.epochs.program import Program, lanes_topic
from penstock.history.committed import FACTS_PARTITION, TOPOLOGY, refuse_incompatible, refuse_lost_changelogs
from penstock.history.copying import Copies, batches_of, one_row
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings
from penstock.kafka.commit import Committer
from penstock.kafka.records import RecordReader
from penstock.kafka.topics import InternalTopic, Topics
from penstock.records import Partition
from penstock.state import last_registers, registers_row
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import TopologyFacts, convertible, encode_facts, renamed, renamed_stores, renames, renaming

_log = logging.getLogger(__name__)


class Renames:
    """Copies the content of a program's stores that have another name now."""

    def __init__(self, program: Program, config: Config, topics: Topics, committer: Committer) -> None:
        self._program = program
        self._id = program.application_id
        self._lanes = lanes_topic(self._id)
        self._config = config
        self._topics = topics
        self._committer = committer

    def run(self, committed: TopologyFacts | None, now: TopologyFacts) -> TopologyFacts | None:
        """Copy what has to be copied; return the facts that are committed now."""
        specs = self._program.specs
        declared = renamed_stores(specs)
        pending = renames(committed, now, declared)
        if committed is None or not pending:
            return committed
        refuse_incompatible(committed, now, convertible(specs), declared)
        self._refuse_lost(committed, pending)
        for name, old in pending.items():
            _log.info("copying the content of store %s to %s", old, name)
        copies = Copies(self._committer, _after_full)
        self._note(copies, renaming(committed, pending))
        faults.point("renaming.begun")
        with closing(RecordReader(consumer_settings(self._config, self._id), self._config.broker_timeout_ms)) as reader:
            for name, old in pending.items():
                self._copy(copies, reader, old, name)
        self._copy_registers(copies, pending)
        copies.commit()
        faults.point("renaming.copied")
        after = renamed(committed, pending)
        self._note(copies, after)
        _log.info("copied %s: %d records", ", ".join(pending), copies.rows)
        return after

    def _refuse_lost(self, committed: TopologyFacts, pending: Mapping[str, str]) -> None:
        """Refuse to copy a changelog that has lost records."""
        names = sorted({changelog_topic(self._id, old) for old in pending.values()})
        found = self._topics.describe(names)
        wanted = [InternalTopic(name, self._program.shards, found[name].config if name in found else {}) for name in names]
        begins = self._topics.begin_offsets(place for name in found for place in self._places(name))
        refuse_lost_changelogs(self._id, committed, self._topics.identities(found), wanted, begins)

    def _copy(self, copies: Copies, reader: RecordReader, old: str, name: str) -> None:
        places = self._places(changelog_topic(self._id, old))
        begins, ends = self._topics.begin_offsets(places), self._topics.end_offsets(places)
        for place in places:
            records = reader.read({place: begins[place]}, {place: ends[place]})
            copies.add(changelog_topic(self._id, name), place[1], batches_of(records))

    def _copy_registers(self, copies: Copies, pending: Mapping[str, str]) -> None:
        """Give the stores what the shards' registers have of them under their old names."""
        places = self._places(self._lanes)
        begins, ends = self._topics.begin_offsets(places), self._topics.end_offsets(places)
        registers: dict[int, dict[str, int]] = {}
        timeout_ms = self._config.broker_timeout_ms
        for _, shard, keys, values in read(consumer_settings(self._config, self._id), begins, ends, timeout_ms):
            registers[shard] = last_registers(keys, values) or registers.get(shard, {})
        for shard, known in registers.items():
            copied = taken_over(known, pending)
            if copied != known:
                copies.add(self._lanes, shard, one_row(*registers_row(copied)))

    def _note(self, copies: Copies, facts: TopologyFacts) -> None:
        copies.add(self._lanes, FACTS_PARTITION, one_row(TOPOLOGY, encode_facts(facts)))
        copies.commit()

    def _places(self, topic: str) -> list[Partition]:
        return [(topic, shard) for shard in range(self._program.shards)]


def taken_over(registers: Mapping[str, int], pending: Mapping[str, str]) -> dict[str, int]:
    """Return registers with those of old stores under the new names, too; a node may have the name of a store."""
    copied = {
        f"{name}{register.removeprefix(old)}": value
        for name, old in pending.items()
        for register, value in registers.items()
        if register.startswith((f"{old}/", f"{old}:"))
    }
    return {**copied, **registers}


def _after_full(rows: int) -> None:
    _log.info("copying: %d records", rows)
    faults.point("renaming.chunk")
