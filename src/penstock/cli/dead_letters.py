"""`penstock dlq`: lists, shows and replays dead letters. It only prints; `penstock.kafka.dead_letters` does the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from penstock.app import App, stopped_by_signals
from penstock.cli.screen import error_console, moment, output_console, print_json, shown
from penstock.config import Config
from penstock.errors import ConfigError, TopologyError
from penstock.kafka.dead_letters import DeadLetters, Replayer, Tally
from penstock.letters import Choice, Group, Letter, Rules, Span, Target, grouped
from penstock.topology import Topology
from penstock.topology.ways import source_of, way_to

LONGEST_SHOWN = 4_096
"""The maximum bytes shown of a key, a value or a header."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Which letters to replay, and where; unless it `is_confirmed`, the command only shows what it would do."""

    topic: str
    choice: Choice
    target: Target
    limit: int | None
    max_attempts: int
    is_confirmed: bool


def print_groups(config: Config, topic: str, as_json: bool) -> None:
    """Print the number of letters of each kind."""
    with DeadLetters(config, topic) as letters:
        groups = grouped(letters.letters(Choice()))
    if as_json:
        print_json([group._asdict() | {"first": moment(group.first_ms), "last": moment(group.last_ms)} for group in groups])
    elif groups:
        output_console().print(shown("\n\n".join(map(_of_group, groups))), soft_wrap=True)
    else:
        output_console().print(shown(f"Topic {topic!r} has no dead letters."))


def print_letters(config: Config, topic: str, place: tuple[int, int] | None, limit: int) -> None:
    """Print the letter at a partition and offset, or the oldest letters, in full."""
    spans = () if place is None else (Span(place[0], place[1], place[1]),)
    with DeadLetters(config, topic) as letters:
        found = list(islice(letters.letters(Choice(spans=spans)), limit))
    if not found:
        where = (
            f"Topic {topic!r} has no dead letters" if place is None else f"{topic}-{place[0]} has no letter at offset {place[1]}"
        )
        raise ConfigError(f"{where}.")
    output_console().print(shown("\n\n".join(map(_in_full, found))), soft_wrap=True)


def replay_letters(config: Config, request: ReplayRequest, app: App | None, application_id: str | None) -> None:
    """Replay letters, or only determine what a replay would do, and print the result."""
    if request.target is Target.NODE and app is None:
        raise ConfigError("--to node needs FILE:APP: only the topology says which nodes are between a source and a node.")
    with DeadLetters(config, request.topic) as letters:
        rules = Rules(
            application=_application_id(application_id, app, letters, request.choice),
            target=request.target,
            max_attempts=request.max_attempts,
            partitions=letters.partitions,
            obstacle=_obstacle(app.topology) if app is not None else lambda *_: None,
        )
        tally = _replayed(Replayer(config, letters, rules, is_dry=not request.is_confirmed), request.choice, request.limit)
    output_console().print(shown(_summary(tally, is_dry=not request.is_confirmed)), soft_wrap=True)


def _replayed(replayer: Replayer, choice: Choice, limit: int | None) -> Tally:
    """Run the replay; SIGTERM and SIGINT stop it between two transactions."""
    is_ending = threading.Event()
    with closing(replayer), stopped_by_signals(is_ending.set):
        return replayer.run(choice, limit, is_ending.is_set, _print_progress)


def _application_id(given: str | None, loaded: App | None, letters: DeadLetters, choice: Choice) -> str:
    if loaded is not None:
        if given not in {None, loaded.application_id}:
            raise ConfigError(
                f"--application-id is {given!r}, but the application is {loaded.application_id!r}. Omit one of them."
            )
        return loaded.application_id
    if given is not None:
        return given
    oldest = next((letter.application for letter in letters.letters(choice) if letter.application), None)
    if oldest is None:
        raise ConfigError(f"None of these letters of {letters.topic.name!r} names its application. Add --application-id.")
    return oldest


def _obstacle(topology: Topology) -> Callable[[str, str], str | None]:
    """Return a function that says why a record of a topic cannot be replayed into a node; it remembers its answers."""
    known: dict[tuple[str, str], str | None] = {}

    def obstacle(topic: str, node: str) -> str | None:
        if (topic, node) not in known:
            try:
                source = source_of(topology.nodes, topic)
                if source.name in topology.global_stores.values():
                    raise TopologyError(f"{topic!r} is the topic of a global table")
                way_to(topology.nodes, source.name, node)
                known[topic, node] = None
            except TopologyError as error:
                known[topic, node] = f"it cannot be replayed into {node!r} only: {error}"
        return known[topic, node]

    return obstacle


def _print_progress(tally: Tally) -> None:
    error_console().print(shown(f"{tally.replayed} replayed, {tally.chosen} checked"))


def _summary(tally: Tally, *, is_dry: bool) -> str:
    verb = "would be replayed" if is_dry else "replayed"
    total = sum(tally.targets.values()) if is_dry else tally.replayed
    lines = [f"{total} of {tally.chosen} letters {verb}."]
    for (topic, node), count in sorted(tally.targets.items(), key=str):
        lines.append(f"  {count} to {topic}" + ("" if node is None else f", into {node} only"))
    for why, (count, first) in sorted(tally.refused.items()):
        lines.append(f"  {count} skipped: {why} (the first is {first.topic}-{first.partition} at offset {first.offset})")
    if is_dry and total:
        lines.append("Nothing was sent. Add --yes to replay them.")
    return "\n".join(lines)


def _of_group(group: Group) -> str:
    """Return a group line by line: a table of what it has would need 120 columns."""
    application, node, error, source = (name.replace("\n", "\\n") for name in group[:4])  # from headers, which anyone may write
    is_one = group.letters == 1
    facts = {
        "node": node,
        "error": error,
        "source": source,
        "failed": moment(group.first_ms) + ("" if is_one else f" to {moment(group.last_ms)}"),
    }
    title = f"{group.letters:,} letter{'' if is_one else 's'} of {application}"
    return "\n".join([title, *(f"  {name:8}{fact}" for name, fact in facts.items())])


def _in_full(letter: Letter) -> str:
    source = "a timer or a cache" if letter.source is None else "{}-{} at offset {}".format(*letter.source)
    facts = {
        "letter": "{}-{} at offset {}".format(*letter.place),
        "from": source,
        "application": f"{letter.application}, epoch {letter.epoch}",
        "node": letter.node,
        "failed": f"{moment(letter.time_ms)}, {letter.kind}",
        "error": f"{letter.error}: {letter.message}",
        "replays": str(letter.attempt),
        "time": moment(letter.timestamp),
        "key": _data(letter.key),
        "value": _data(letter.value) + ("" if letter.is_whole else "  (differs from the source record)"),
    }
    lines = [f"{name:12}{fact}" for name, fact in facts.items()]
    lines += [f"{'header':12}{name}: {_data(value)}" for name, value in letter.record_headers]
    return "\n".join([*lines, *(f"    {line}" for line in letter.stack.splitlines())])


def _data(data: bytes | None) -> str:
    """Return bytes as text if all characters are printable, otherwise in hexadecimal."""
    if data is None:
        return "(none)"
    head, rest = data[:LONGEST_SHOWN], len(data) - LONGEST_SHOWN
    try:
        text = head.decode()
    except UnicodeDecodeError:
        text = ""
    is_text = bool(text) and all(character.isprintable() or character in "\n\t" for character in text)
    return (text if is_text else head.hex(" ")) + (f" … and {rest} more bytes" if rest > 0 else "")
