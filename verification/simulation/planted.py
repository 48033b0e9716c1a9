"""The bugs that `make simulate` plants in what drives an application: one change of source text each."""

from __future__ import annotations

from verification.conformance.planted import Mutant

MUTANTS = (
    Mutant(
        "offsets are committed before the rows of their epoch",
        "kafka/commit/committer.py",
        "            self._begin()\n            self._produce(batches)\n            self._send_offsets(offsets)\n",
        "            self._publisher.begin()\n            self._publisher.send_offsets(offsets)\n"
        "            self._publisher.commit()\n"
        "            self._begin()\n            self._produce(batches)\n            self._send_offsets(offsets)\n",
    ),
    Mutant(
        "the rows of an epoch are committed before its offsets",
        "kafka/commit/committer.py",
        "            self._begin()\n            self._produce(batches)\n            self._send_offsets(offsets)\n",
        "            self._begin()\n            self._produce(batches)\n            self._publisher.commit()\n"
        "            self._publisher.begin()\n            self._send_offsets(offsets)\n",
    ),
    Mutant(
        "an unknown outcome of a commit counts as a commit",
        "kafka/publishers.py",
        "                self._is_in_doubt = True\n                return False\n",
        "                return True\n",
    ),
    Mutant(
        "a start does not fence the instance before it",
        "kafka/publishers.py",
        '            "transactional.id": transactional_id,\n',
        '            "transactional.id": f"{transactional_id}-{id(self)}",\n',
    ),
    Mutant(
        "a start fences only with its first transaction",
        "kafka/publishers.py",
        "        self._init()\n"
        '        point("kafka.after_init")\n\n    @property\n    def is_suspect(self) -> bool:\n'
        '        """Whether a commit of this producer may still arrive late, so that a new producer should take over."""\n'
        "        return self._is_in_doubt or self._producer.had_trouble\n\n    def begin(self) -> None:\n"
        '        """Open a transaction."""\n',
        '        point("kafka.after_init")\n\n    @property\n    def is_suspect(self) -> bool:\n        return False\n\n'
        "    def begin(self) -> None:\n        if not hasattr(self, '_producer'):\n            self._init()\n",
    ),
    Mutant(
        "what a partition gets first goes together with what follows",
        "kafka/producer.py",
        "            if len(first):\n",
        "            if False:\n",
    ),
    Mutant(
        "restores read rows of aborted transactions",
        "kafka/clients.py",
        '    "isolation.level": "read_committed",\n',
        '    "isolation.level": "read_uncommitted",\n',
    ),
    Mutant(
        "tasks of attempts that were given up may still write",
        "epochs/state_directory.py",
        "        if owner != expected:\n",
        "        if owner.partition(_ATTEMPT)[0] != expected.partition(_ATTEMPT)[0]:\n",
    ),
    Mutant(
        "the first of many records is left out",
        "runtime/input/feed.py",
        "            return self._engine.run(epoch, self._feed.records(epoch, ranges), is_small=is_small)\n",
        "            ranges = {place: (begin + (end - begin > 5), end) for place, (begin, end) in ranges.items()}\n"
        "            return self._engine.run(epoch, self._feed.records(epoch, ranges), is_small=is_small)\n",
    ),
    Mutant(
        "a record that no epoch can hold vanishes",
        "runtime/loop/dispatcher.py",
        "        at.instead = self._give_up(at.epoch, place, offset, at.too_large)\n",
        "",
    ),
    Mutant(
        "offsets have the number of the next epoch",
        "runtime/loop/publication.py",
        "                epoch=progress.epoch,\n",
        "                epoch=progress.epoch + 1,\n",
    ),
    Mutant(
        "offsets are one record behind",
        "runtime/loop/publication.py",
        "progress.offsets[topic, partition], metadata",
        "max(0, progress.offsets[topic, partition] - 1), metadata",
    ),
    Mutant(
        "a start repeats the number of the last epoch",
        "history/past.py",
        "        newest.epoch,\n        {partition: offset",
        "        newest.epoch - 1,\n        {partition: offset",
    ),
    Mutant(
        "added partitions are read from their end",
        "history/truth.py",
        "                offsets[partition] = begins[partition]\n",
        "                offsets[partition] = ends[partition]\n",
    ),
    Mutant(
        "a mark names offsets that lanes have not seen",
        "runtime/loop/agenda.py",
        "dict(self._ends())",
        "{place: end + 3 for place, end in self._ends().items()}",
    ),
    Mutant(
        "a store that is ahead is not rolled back",
        "epochs/standing.py",
        "    if state.epoch > target:\n",
        "    if False:\n",
    ),
    Mutant(
        "whatever a store has counts as committed",
        "epochs/standing.py",
        "    return max(committed.epoch, head.earliest) if is_known else head.earliest\n",
        "    return head.epoch\n",
    ),
    Mutant(
        "a store that is behind counts as current",
        "epochs/standing.py",
        "    is_at_epoch = head.epoch == committed.epoch and has_known_commits(program, lane, head, committed)\n",
        "    is_at_epoch = has_known_commits(program, lane, head, committed) or head.epoch < committed.epoch\n",
    ),
    Mutant(
        "a restore stops one row early",
        "epochs/restore.py",
        "    for topic, partition, keys, values in read(starts, ends):\n",
        "    for topic, partition, keys, values in read(starts, {place: max(0, end - 2) for place, end in ends.items()}):\n",
    ),
    Mutant(
        "a start reads its position before it fences",
        "runtime/fence.py",
        "    publishing = Publishing(instance, topics, {**sinks, **internal})\n"
        "    closers.append(publishing.publisher.close)\n"
        "    on_publishing(publishing)\n"
        "    turn.announce(instance, publishing.committer)\n"
        "    turn.reached(FENCED)\n"
        "    home = _occupied(program, closers)\n"
        "    closers.append(beyond.load(hosting, publishing.sizes).stop)\n"
        "    position = truth.position(truth.partitions(sources), {name: topic.topic_id for name, topic in sources.items()})\n",
        "    home = _occupied(program, closers)\n"
        "    position = truth.position(truth.partitions(sources), {name: topic.topic_id for name, topic in sources.items()})\n"
        "    publishing = Publishing(instance, topics, {**sinks, **internal})\n"
        "    closers.append(publishing.publisher.close)\n"
        "    on_publishing(publishing)\n"
        "    turn.announce(instance, publishing.committer)\n"
        "    turn.reached(FENCED)\n"
        "    closers.append(beyond.load(hosting, publishing.sizes).stop)\n",
    ),
    Mutant(
        "the last of many rows of an epoch is not published",
        "runtime/loop/publication.py",
        "        batches = [*first, *checked]\n",
        "        batches = [*first, *(batch.slice(0, batch.num_rows - (batch.num_rows > 3)) for batch in checked)]\n",
    ),
    Mutant(
        "a restore leaves registers as they are",
        "epochs/restore.py",
        "        shard.restore_registers(registers[shard.number])\n",
        "        pass\n",
    ),
    Mutant(
        "a restore begins behind the row that follows the mark",
        "epochs/restore.py",
        "    left = sum(max(0, end - starts[place]) for place, end in ends.items())\n",
        "    starts = {place: start + (start < ends[place]) for place, start in starts.items()}\n"
        "    left = sum(max(0, end - starts[place]) for place, end in ends.items())\n",
    ),
    Mutant(
        "only the first partition's offset is committed",
        "runtime/loop/publication.py",
        "        for topic, partition in progress.origins:\n",
        "        for topic, partition in progress.origins[:1]:\n",
    ),
    Mutant(
        "a start continues behind the next record",
        "history/truth.py",
        "        offsets = {**known.offsets, **{",
        "        known = replace(known, offsets={place: at + (at < ends[place]) for place, at in known.offsets.items()})\n"
        "        offsets = {**known.offsets, **{",
    ),
    Mutant(
        "a standby never gives up an instance that is silent",
        "runtime/standby/beacon.py",
        "            if machine.monotonic() - heard > timeout_s:\n",
        "            if machine.monotonic() - heard > timeout_s > 1_000:\n",
    ),
    Mutant(
        "a standby believes the first announcement that it reads",
        "runtime/standby/announcement.py",
        "            if record.key == ACTIVE and record.value is not None:\n",
        "            if record.key == ACTIVE and record.value is not None and self._last is None:\n",
    ),
    Mutant(
        "an instance that takes over does not announce itself",
        "runtime/standby/turn.py",
        "        if self._beacon is not None:\n",
        "        if self._beacon is not None and self._beacon is None:\n",
    ),
)
