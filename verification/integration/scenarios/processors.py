"""User processors: stores of every kind, punctuators of both clocks, timers, and the state that a lane keeps for them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from penstock import (
    FixedKeyProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    Timer,
    Topology,
    Windowed,
    key_value_store,
    session_store,
    timestamped_key_value_store,
    timestamped_window_store,
    versioned_store,
    window_store,
)
from verification.integration.inputs import any_key, closing, fed, forward_moments, moments, one_phase
from verification.integration.scenario import Output, Phase, Reading, Scenario, Setup


class _Deduplicate(Processor[str, str, str, str]):
    """Forwards an id once within the store's retention."""

    def process(self, record: Record[str, str]) -> None:
        seen = self.context.store("seen")
        seen.observe(self.context.current_stream_time_ms())
        if record.value not in seen:
            seen.put(record.value, 1, record.timestamp)
            self.context.forward(record)


def _deduplicated(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("seen", value=int, ttl="3s"))
    (
        builder.stream(setup.topic("messages"), value=str)
        .select_key(lambda _, message: message)
        .repartition()
        .process(_Deduplicate, stores=["seen"])
        .to(setup.topic("once"), value=str)
    )
    return builder.build()


def _messages(rng: Random, count: int) -> Sequence[Phase]:
    messages = [fed("messages", any_key(rng), f"m{rng.randrange(60)}", time) for time in moments(rng, count)]
    return one_phase(messages + closing("messages", str, messages))


class _Remembering(FixedKeyProcessor[str, str, str]):
    """Forwards the content of stores of every kind, so that each is read as well as written."""

    def process(self, record: Record[str, str]) -> None:
        store, key, time = self.context.store, record.key, record.timestamp
        plain, latest, windows, counted = store("plain"), store("latest"), store("windows"), store("counted")
        sessions, versions = store("sessions"), store("versions")
        plain[key] = number = (plain.get(key) or 0) + 1
        before = latest.entry(key)
        latest.put(key, record.value, time)
        start = time - time % 1000
        counted.put(key, (counted.fetch(key, start) or 0) + 1, start, time)
        windows.put(key, record.value, time)
        near = [value for _, value in windows.fetch_range(key, max(0, time - 500), time + 500)]
        merged = list(sessions.find_sessions(key, time - 300, time + 300))
        for session, _ in merged:
            sessions.remove(session)
        ends = [time, *(at for session, _ in merged for at in (session.start, session.end))]
        sessions.put(Windowed(key, min(ends), max(ends)), sum(count for _, count in merged) + 1)
        versions.put(key, record.value, time)
        then = versions.get(key, max(0, time - 200))
        answer = f"{number} {before} {near} {len(merged)} {counted.fetch(key, start)} {None if then is None else then.value}"
        self.context.forward(record.with_value(answer))


def _remembered(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    specs = [
        key_value_store("plain", value=int),
        timestamped_key_value_store("latest", value=str),
        window_store("windows", value=str, window_size="1s", retention="2h", retain_duplicates=True),
        timestamped_window_store("counted", value=int, window_size="1s", retention="2h"),
        session_store("sessions", value=int, retention="2h"),
        versioned_store("versions", value=str, history="2h"),
    ]
    for spec in specs:
        builder.add_state_store(spec)
    (
        builder.stream(setup.topic("readings"), value=str)
        .process_values(_Remembering, stores=[spec.name for spec in specs], value=str)
        .to(setup.topic("answers"), value=str)
    )
    return builder.build()


def _readings(rng: Random, count: int) -> Sequence[Phase]:
    return one_phase([fed("readings", any_key(rng), f"v{rng.randrange(1000)}", time) for time in moments(rng, count)])


class _Delay(Processor[str, str, str, str]):
    """Delays every record by two seconds of stream time."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        context.schedule("500ms", PunctuationType.STREAM_TIME, self.release)

    def process(self, record: Record[str, str]) -> None:
        numbers, held = self.context.store("numbers"), self.context.store("held")
        numbers[record.key] = number = (numbers.get(record.key) or 0) + 1
        held[f"{record.timestamp:016} {record.key} {number:08}"] = record.value

    def release(self, time: int) -> None:
        held = self.context.store("held")
        for place, value in list(held.range(None, f"{time - 2000:016}")):
            timestamp, key, _ = place.split()
            del held[place]
            self.context.forward(Record(key, value, int(timestamp)))


def _delayed(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("numbers", value=int)).add_state_store(key_value_store("held", value=str))
    (
        builder.stream(setup.topic("letters"), value=str)
        .process(_Delay, stores=["numbers", "held"])
        .group_by_key()
        .aggregate(list, lambda _, letter, last: [*last, letter][-5:], store=setup.store("delivered", value=list))
        .to_stream()
        .to(setup.topic("delivered"), value=list)
    )
    return builder.build()


def _letters(rng: Random, count: int) -> Sequence[Phase]:
    """In order, because a lane's stream time decides in which order it releases out-of-order records."""
    letters = [fed("letters", any_key(rng), f"l{rng.randrange(1000)}", time) for time in forward_moments(rng, count)]
    return one_phase(letters + closing("letters", str, letters))


class _Collect(Processor[str, str, str, str]):
    """Collects records and forwards them by the wall clock."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        context.schedule("200ms", PunctuationType.WALL_CLOCK_TIME, self.send)

    def process(self, record: Record[str, str]) -> None:
        collected = self.context.store("collected")
        collected[record.key] = [*(collected.get(record.key) or ()), [record.value, record.timestamp]]

    def send(self, _: int) -> None:
        collected = self.context.store("collected")
        for key, values in list(collected.all()):
            del collected[key]
            for value, timestamp in values:
                self.context.forward(Record(key, value, timestamp))


def _collected(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("collected", value=list))
    sent = builder.stream(setup.topic("letters"), value=str).process(_Collect, stores=["collected"], key=str, value=str)
    sent.to(setup.topic("sent"), value=str)
    sent.group_by(lambda _, letter: letter[:2]).count(store=setup.store("counts")).to_stream().to(
        setup.topic("counts"), value=int
    )
    return builder.build()


class Remind(Processor[str, str, str, str]):
    """Forwards every record two seconds of event time later."""

    def process(self, record: Record[str, str]) -> None:
        """Register a timer."""
        self.context.timers.event_time(after="2s", name=f"{record.value} of {record.timestamp}")

    def on_timer(self, timer: Timer) -> None:
        """Forward the record."""
        self.context.forward(timer.record(timer.name))


def _reminded(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    letters = builder.stream(setup.topic("letters"), value=str)
    letters.process(Remind, name="remind").to(setup.topic("reminders"), key=str, value=str)
    return builder.build()


def _letters_by_day(rng: Random, count: int) -> Sequence[Phase]:
    times = list(moments(rng, count))
    third = max(1, count // 3)
    days = [times[:third], times[third : 2 * third], times[2 * third :]]
    by_day = [[fed("letters", any_key(rng), f"l{rng.randrange(1000)}", time) for time in day] for day in days]
    return [Phase(letters, advance_ms=1000) for letters in by_day]


SCENARIOS = (
    Scenario("deduplication", _deduplicated, _messages, (Output.of_stream("once"),)),
    Scenario("stores of every kind", _remembered, _readings, (Output.of_stream("answers"),)),
    Scenario(
        "stream-time punctuator",
        _delayed,
        _letters,
        (Output("delivered"),),
    ),
    Scenario("timers", _reminded, _letters, (Output.of_stream("reminders"),)),
    Scenario(
        "wall-clock punctuator",
        _collected,
        _letters_by_day,
        (Output.of_stream("sent"), Output("counts", plain=Reading.TABLE)),
    ),
)
