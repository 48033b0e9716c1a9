"""The bugs that `python -m verification.conformance epochs-mutants` plants, in lanes, shards, restores and rollbacks."""

from __future__ import annotations

from verification.conformance.planted import Mutant

MUTANTS = (
    Mutant(
        "records are routed by the bytes of the producer",
        "epochs/routes.py",
        "    if serde.is_canonical or (isinstance(serde, String) and is_text(keys)):\n",
        "    if True:\n",
    ),
    Mutant(
        "records without a key all go to one shard",
        "epochs/routes.py",
        "shard_of_partition(partition, shards) if key is None else",
        "0 if key is None else",
    ),
    Mutant(
        "a new application has eight shards at least, whatever its topics",
        "history/shards.py",
        '    return widths[widest], f"as its',
        '    return max(8, widths[widest]), f"as its',
    ),
    Mutant(
        "an exchange keeps the shard of the old key",
        "epochs/output.py",
        "[shard_of(key, shards) for key in keys if key is not None]",
        "senders.tolist()",
    ),
    Mutant(
        "shards of a lane share their registers",
        "state/lane.py",
        "            found = self._shards[number] = self._open_shard(number)\n        return found\n",
        "            found = self._shards[number] = self._open_shard(number)\n"
        "            if number - 1 in self._shards:\n                found.registers = self._shards[number - 1].registers\n"
        "        return found\n",
    ),
    Mutant(
        "a lane's stores expire entries by the newest record of any shard",
        "lanes/stores.py",
        "            shard.state.store(blueprint.specs[name])\n",
        "            kept = getattr(shard.state.store(blueprint.specs[name]), '_retention', None)\n"
        "            if kept is not None:\n"
        "                known = blueprint.spec.__func__.__dict__\n"
        "                observed = known.setdefault((id(blueprint), name), kept._observed)\n"
        "                observed.value = kept._observed.value = max(observed.value, kept._observed.value)\n"
        "                kept._observed = observed\n",
    ),
    Mutant(
        "arbitrary keys of a processor are kept by lane",
        "state/shard.py",
        "        self._prefix = PREFIX.pack(number)\n",
        "        self._prefix = PREFIX.pack(number // 2 * 2)\n",
    ),
    Mutant(
        "sink records leave lane by lane",
        "epochs/in_process.py",
        "return in_order_of_causes(out(table))",
        "return out(table)",
    ),
    Mutant(
        "a later stage's changes of a table come before an earlier one's",
        "epochs/wire.py",
        "processing_order(table.select(_PLACES).take(pa.array(sent)), stages[sent])",
        "processing_order(table.select(_PLACES).take(pa.array(sent)), -stages[sent])",
    ),
    Mutant(
        "a mark does not identify its topics",
        "epochs/standing.py",
        "return all(mark.topic_ids.get(topic) == now for",
        "return all(True or now for",
    ),
    Mutant(
        "a mark has the changelogs' ends after the epoch that saves it",
        "epochs/hops.py",
        "return Mark(mark.epoch, mark.time_ms, offsets, mark.topic_ids)",
        "return Mark(mark.epoch, mark.time_ms, {place: offset + 2 for place, offset in offsets.items()}, mark.topic_ids)",
    ),
    Mutant(
        "a rollback forgets the registers",
        "state/lane.py",
        "for space, key in zip(step.spaces, keys, strict=True)]",
        "for space, key in zip(step.spaces, keys, strict=True) if space != '/registers']",
    ),
    Mutant(
        "a rollback restores new values instead of old ones",
        "state/lane.py",
        "changes.old.extend(old)",
        "changes.old.extend(values)",
    ),
    Mutant(
        "catching up skips the first row",
        "epochs/restore.py",
        "in read(starts, ends):",
        "in read({place: start + 1 for place, start in starts.items()}, ends):",
    ),
    Mutant(
        "a rebuilt shard has no registers",
        "epochs/restore.py",
        "shard.restore_registers(registers[shard.number])",
        "shard.restore_registers({})",
    ),
    Mutant(
        "a rebuilt shard has the latest registers of its lane",
        "epochs/restore.py",
        "shard.restore_registers(registers[shard.number])",
        "of_all = list(registers.values())\n"
        "        shard.restore_registers({name: max(of.get(name, -1) for of in of_all) for each in of_all for name in each})",
    ),
    Mutant(
        "a store that is ahead is trusted",
        "epochs/standing.py",
        "        roll_back(state, has_known_commits(program, lane, state.head, committed), committed)\n",
        "",
    ),
    Mutant(
        "a composed lane has the epochs in flight of its sources",
        "epochs/layouts.py",
        "state.read_committed(stands.target)",
        "state.read_committed(state.epoch)",
    ),
    Mutant(
        "a start rolls back one epoch only",
        "epochs/standing.py",
        "state.roll_back(target + 1)",
        "state.roll_back()",
    ),
    Mutant(
        "a failed commit takes back only the last epoch in flight",
        "epochs/hops.py",
        "            _roll_back(state, epoch)\n        _require(state, epoch, epoch.previous)\n",
        "            state.roll_back()\n",
    ),
    Mutant(
        "an epoch in flight can no longer be taken back when the next one is written",
        "state/lane.py",
        "kept = [one for one in earlier if one.epoch > committed]",
        "kept = [one for one in earlier if one.epoch > last.previous]",
    ),
    Mutant(
        "a read of the committed epoch finds the values of a later one",
        "state/lane.py",
        "for later in reversed(head.after(epoch)):",
        "for later in head.after(epoch):",
    ),
    Mutant(
        "partitions are not merged by time",
        "lanes/epoch.py",
        '    order = np.argsort(place, kind="stable") if is_one_shard else np.lexsort((place, shards[by_group]))\n',
        "    order = np.arange(len(place))\n",
    ),
    Mutant(
        "a punctuator forgets when it is due next",
        "lanes/punctuation.py",
        "        self.due += (missed + 1) * self.interval_ms\n        self._register.value = self.due\n",
        "        self.due += (missed + 1) * self.interval_ms\n",
    ),
    Mutant(
        "a shard that waits for the clock is forgotten",
        "epochs/due.py",
        "    wall_clock.value = NEVER if clocks.due is None else max(clocks.due, 0)\n",
        "    wall_clock.value = NEVER\n",
    ),
    Mutant(
        "a stage that runs again keeps what later stages wrote",
        "epochs/hops.py",
        "    state.roll_back(epoch.number, stage)\n",
        "    state.roll_back(epoch.number, max(stage, state.reached[1]))\n",
    ),
    Mutant(
        "all pieces of a shard's records are taken for the first",
        "epochs/output.py",
        "self._rows_of[shard], self.records - self._converted)",
        "self._rows_of[shard], 0)",
    ),
    Mutant(
        "columns begin with empty aggregates in every epoch",
        "lanes/settling.py",
        "    states = [None if each is None else state_in(each) for each in raw]\n",
        "    states = [None for each in raw]\n",
    ),
    Mutant(
        "columns count the records of an epoch only",
        "lanes/settling.py",
        "[[0 if each is None else count_in(each) for each in raw]]",
        "[[0 for each in raw]]",
    ),
    Mutant(
        "in columns, a result has the time of its last record",
        "lanes/settling.py",
        "    np.maximum.at(times, groups.numbers, timestamps)\n",
        "    times[groups.numbers] = timestamps\n",
    ),
    Mutant(
        "columns do not count the records they drop",
        "lanes/gathering.py",
        "path.gather.drops_for, found.dropped)",
        "path.gather.drops_for, 0)",
    ),
    Mutant(
        "in columns, the first value is the last one",
        "expressions/columns/aggregation.py",
        "[each is None for each in old], old, np.minimum, LAST_INT64)",
        "[each is None for each in old], old, np.maximum, -1)",
    ),
    Mutant(
        "in columns, the last record of an epoch closes the windows of all",
        "lanes/windowing.py",
        "> observed[records] - windows.grace_ms",
        "> observed[-1] - windows.grace_ms",
    ),
    Mutant(
        "in columns, a table of windows has no clock",
        "lanes/windowing.py",
        "    table.clock.observe(changes.time)\n",
        "",
    ),
    Mutant(
        "columns do not count updates of closed windows",
        "lanes/gathering.py",
        "path.gather.within.drops_for, changes.expired)",
        "path.gather.within.drops_for, 0)",
    ),
    Mutant(
        "a processor's attributes survive a roll-back",
        "epochs/stays.py",
        "        if state.head.write_id != self._write_id:\n",
        "        if self._write_id is None:\n",
    ),
    Mutant(
        "a processor keeps stores that nobody writes",
        "state/lane.py",
        "            state._shards[shard.number] = shard\n",
        "            pass\n",
    ),
    Mutant(
        "processors begin anew in every epoch",
        "epochs/stays.py",
        "        self._write_id = state.head.write_id\n",
        "        self._write_id = None\n",
    ),
    Mutant(
        "shards of a lane share their processors",
        "epochs/stays.py",
        "        found = self._residents.get(shard)\n        if found is None:\n"
        "            found = self._residents[shard] = Residents",
        "        found = self._residents.get(0)\n        if found is None:\n            found = self._residents[0] = Residents",
    ),
    Mutant(
        "processors are not closed when their stay ends",
        "epochs/stays.py",
        "        for failure in residents.close() if thread is None else in_thread(thread, residents.close).result():\n",
        "        for failure in []:\n",
    ),
    Mutant(
        "what is scheduled late is forgotten when the epoch ends",
        "operators/processors.py",
        "for scheduled in self.scheduled if not scheduled.cancelled]",
        "for scheduled in self.scheduled if not scheduled.cancelled and not scheduled.is_late]",
    ),
    Mutant(
        "what is scheduled late has the registers of what init schedules",
        "operators/processors.py",
        "is_late, schedule = self.has_begun, self._host.time.schedule",
        "is_late, schedule = False, self._host.time.schedule",
    ),
    Mutant(
        "nobody waits for what is scheduled late",
        "lanes/punctuation.py",
        "for schedule in self._heap if not schedule.cancelled), default",
        "for schedule in self._heap if not schedule.cancelled and not schedule.is_late), default",
    ),
    Mutant(
        "a punctuator is cancelled for good",
        "epochs/stage_run.py",
        "                    start=self._start,\n",
        "                    start=0,\n",
    ),
    Mutant(
        "a punctuator is cancelled until its processor begins anew",
        "lanes/punctuation.py",
        "        self._register.value = self._cancelled_as\n",
        "",
    ),
    Mutant(
        "windows of a key go to different partitions",
        "lanes/sinks.py",
        "return -node.partition_tail or None",
        "return None",
    ),
    Mutant(
        "sessions of a key go to different partitions",
        "dsl/sinks.py",
        "tail = key_serde.times_size",
        "tail = 8",
    ),
    Mutant(
        "a mapper's annotation does not say its type",
        "dsl/annotations.py",
        "found = given_serde(given) or _serde_said(kind, default)",
        "found = given_serde(given)",
    ),
    Mutant(
        "a reducer's annotation does not say its type",
        "dsl/annotations.py",
        "return _serde_said(returned(reducer), draft.default_value) or known",
        "return known",
    ),
    Mutant(
        "a processor's parameters do not say its types",
        "dsl/annotations.py",
        "return (parameters[2], parameters[3]) if len(parameters) == 4 else _UNKNOWN",
        "return _UNKNOWN",
    ),
    Mutant(
        "an annotation does not say the type of keys",
        "dsl/annotations.py",
        "return given_serde(given) or _serde_said(kind, draft.default_key)",
        "return given_serde(given)",
    ),
    Mutant(
        "a cached table holds objects",
        "state/by_value.py",
        "return lambda value: value if type(value) in IMMUTABLE else _new(Encoded, (serialize(value),))",
        "return lambda value: value",
    ),
    Mutant(
        "cached windows hold objects",
        "operators/emission.py",
        "return holder(spec.serdes[1]) if spec.cached and spec.aggregates is None else _as_it_is",
        "return _as_it_is",
    ),
    Mutant(
        "an attempt gets the aggregate that the last one has changed",
        "lanes/retries.py",
        "    if operator.retries_what_it_reads:\n        return operator\n",
        "",
    ),
    Mutant(
        "what was written before threads begin is lost",
        "state/lane.py",
        "            shard.read_from(state._engine)\n",
        "            shard.reopen(state._engine)\n",
    ),
)
