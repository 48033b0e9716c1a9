"""`penstock dlq`: dead letters by kind, one letter in full, and their replay. It asks and shows; the work is the kafka room's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from penstock.app import App, stopped_by_signals
from penstock.cli.applications import load_app
from penstock.config import Config
from penstock.errors import ConfigError, PenstockError, TopologyError
from penstock.kafka.dead_letters import DeadLetters, Replayer, Tally
from penstock.letters import Choice, Letter, Rules, Span, Target, grouped
from penstock.timing import instant_ms
from penstock.topology import Topology
from penstock.topology.ways import source_of, way_to

commands = typer.Typer(
    help="Dead letters: look at them, and replay them.", no_args_is_help=True, pretty_exceptions_show_locals=False
)

LONGEST_SHOWN = 4_096
"""So much of a key, a value or a header is shown."""

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="A TOML file with settings; penstock.toml if there is one.")
]
Servers = Annotated[str | None, typer.Option(help="Brokers, host:port; wins over file and environment.")]
Node = Annotated[str | None, typer.Option(help="Only letters of this node.")]
ErrorName = Annotated[str | None, typer.Option("--error", help="Only letters of this error; its module may be left out.")]
SourceTopic = Annotated[str | None, typer.Option(help="Only letters of records from this topic.")]
Since = Annotated[str | None, typer.Option(help="Only what failed at or after this time: 2024-05-01T12:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="Only what failed before this time.")]


@commands.command("ls")
def list_letters(
    topic: TopicName,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    config: ConfigFile = None,
    bootstrap_servers: Servers = None,
) -> None:
    """How many letters there are by application, node, error and source topic, and when they failed."""
    with _told(), DeadLetters(_config(config, bootstrap_servers), topic) as letters:
        groups = grouped(letters.letters(Choice()))
    if as_json:
        rows = [group._asdict() | {"first": _time(group.first_ms), "last": _time(group.last_ms)} for group in groups]
        typer.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    heads = ("LETTERS", "APPLICATION", "NODE", "ERROR", "SOURCE", "FIRST", "LAST")
    cells = [
        (str(g.letters), g.application, g.node, g.error, g.source_topic, _time(g.first_ms), _time(g.last_ms)) for g in groups
    ]
    typer.echo(_columns([heads, *cells]) if groups else f"{topic} has no letters.")


@commands.command()
def show(
    topic: TopicName,
    partition: Annotated[int | None, typer.Option(min=0, help="Of the letter, in the dead-letter topic.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Of the letter, in its partition.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many letters, from the oldest on.")] = 1,
    config: ConfigFile = None,
    bootstrap_servers: Servers = None,
) -> None:
    """Letters in full: where they came from, what failed and where, key, value and headers."""
    with _told():
        if (partition is None) != (offset is None):
            raise ConfigError("--partition and --offset name one letter together: give both, or --limit")
        spans = () if partition is None or offset is None else (Span(partition, offset, offset),)
        with DeadLetters(_config(config, bootstrap_servers), topic) as letters:
            found = list(islice(letters.letters(Choice(spans=spans)), limit))
        if not found:
            raise ConfigError(f"{topic} has no letters" if not spans else f"{topic}-{partition} has no letter at offset {offset}")
    typer.echo("\n\n".join(map(_in_full, found)))


@commands.command()
def replay(
    topic: TopicName,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without, it is only said what would be done.")] = False,
    to: Annotated[
        Target, typer.Option(help="Through the source topic, for all nodes; or into the node that failed only.")
    ] = Target.SOURCE,
    app: Annotated[str | None, typer.Option(metavar="FILE:APP", help="The application, for --to node.")] = None,
    application: Annotated[str | None, typer.Option(help="Its id; by default that of the oldest letter.")] = None,
    node: Node = None,
    error: ErrorName = None,
    source_topic: SourceTopic = None,
    since: Since = None,
    until: Until = None,
    offset: Annotated[list[str] | None, typer.Option(metavar="P:O[-O]", help="Only these letters; may be given again.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many letters at most.")] = None,
    max_attempts: Annotated[int, typer.Option(min=1, help="A letter that has been replayed so often is left alone.")] = 3,
    config: ConfigFile = None,
    bootstrap_servers: Servers = None,
) -> None:
    """Send letters' records through the application again, each once, whatever happens on the way."""
    with _told():
        choice = Choice(
            node=node,
            error=error,
            source_topic=source_topic,
            since_ms=None if since is None else instant_ms(since, "--since"),
            until_ms=None if until is None else instant_ms(until, "--until"),
            spans=tuple(map(Span.read, offset or ())),
        )
        loaded = None if app is None else load_app(app)
        if to is Target.NODE and loaded is None:
            raise ConfigError("--to node needs --app file:app: what stands between a source and a node is the topology's to say")
        settings = _config(config, bootstrap_servers)
        with DeadLetters(settings, topic) as letters:
            rules = Rules(
                application=_application_id(application, loaded, letters, choice),
                target=to,
                max_attempts=max_attempts,
                partitions=letters.partitions,
                obstacle=_obstacle(loaded.topology) if loaded is not None else lambda *_: None,
            )
            tally = _replayed(Replayer(settings, letters, rules, is_dry=not yes), choice, limit)
    typer.echo(_summary(tally, is_dry=not yes))


def _replayed(replayer: Replayer, choice: Choice, limit: int | None) -> Tally:
    """SIGTERM and SIGINT ask for the end, which comes between two transactions."""
    asked = threading.Event()
    with closing(replayer), stopped_by_signals(asked.set):
        return replayer.run(choice, limit, asked.is_set, _tell_progress)


def _application_id(given: str | None, loaded: App | None, letters: DeadLetters, choice: Choice) -> str:
    if loaded is not None:
        if given not in {None, loaded.application_id}:
            raise ConfigError(f"--application is {given!r}, but --app is {loaded.application_id!r}")
        return loaded.application_id
    if given is not None:
        return given
    oldest = next((letter.application for letter in letters.letters(choice) if letter.application), None)
    if oldest is None:
        raise ConfigError(f"{letters.topic.name} has no such letter that says which application it is of; give --application")
    return oldest


def _obstacle(topology: Topology) -> Callable[[str, str], str | None]:
    """What is in the way of a record from a topic to a node, found out once for each."""
    known: dict[tuple[str, str], str | None] = {}

    def obstacle(topic: str, node: str) -> str | None:
        if (topic, node) not in known:
            try:
                source = source_of(topology.nodes, topic)
                if source.name in topology.global_stores.values():
                    raise TopologyError(f"{topic!r} is read for a global table")
                way_to(topology.nodes, source.name, node)
                known[topic, node] = None
            except TopologyError as error:
                known[topic, node] = f"it cannot be replayed into {node!r} only: {error}"
        return known[topic, node]

    return obstacle


def _config(path: Path | None, bootstrap_servers: str | None) -> Config:
    return Config.load(path) if bootstrap_servers is None else Config.load(path, bootstrap_servers=bootstrap_servers)


@contextmanager
def _told() -> Iterator[None]:
    """What Penstock raises on purpose is told in a line, and ends the process with its own code."""
    try:
        yield
    except PenstockError as error:
        typer.echo(f"error: {_safe(str(error))}", err=True)
        raise typer.Exit(error.exit_code) from error


def _tell_progress(tally: Tally) -> None:
    typer.echo(f"{tally.replayed} replayed, {tally.chosen} looked at", err=True)


def _summary(tally: Tally, *, is_dry: bool) -> str:
    verb = "would be replayed" if is_dry else "replayed"
    total = sum(tally.targets.values()) if is_dry else tally.replayed
    lines = [f"{total} of {tally.chosen} letters {verb}."]
    for (topic, node), count in sorted(tally.targets.items(), key=str):
        lines.append(f"  {count} to {_safe(topic)}" + ("" if node is None else f", into {_safe(node)} only"))
    for why, (count, first) in sorted(tally.refused.items()):
        lines.append(f"  {count} not: {_safe(why)} (the first is {first.topic}-{first.partition} at offset {first.offset})")
    if is_dry and total:
        lines.append("Nothing was sent. Give --yes to do it.")
    return "\n".join(lines)


def _in_full(letter: Letter) -> str:
    source = "a timer or a cache" if letter.source is None else "{}-{} at offset {}".format(*letter.source)
    facts = {
        "letter": "{}-{} at offset {}".format(*letter.place),
        "from": source,
        "application": f"{letter.application}, epoch {letter.epoch}",
        "node": letter.node,
        "failed": f"{_time(letter.time_ms)}, {letter.kind}",
        "error": f"{letter.error}: {letter.message}",
        "replays": str(letter.attempt),
        "time": _time(letter.timestamp),
        "key": _data(letter.key),
        "value": _data(letter.value) + ("" if letter.is_whole else "  (not as its source has it)"),
    }
    lines = [f"{name:12}{_safe(fact)}" for name, fact in facts.items()]
    lines += [f"{'header':12}{_safe(name)}: {_data(value)}" for name, value in letter.record_headers]
    return "\n".join([*lines, *(f"    {line}" for line in _safe(letter.stack).splitlines())])


def _data(data: bytes | None) -> str:
    """Bytes as text if all of it can be shown, else in hexadecimal."""
    if data is None:
        return "(none)"
    shown, rest = data[:LONGEST_SHOWN], len(data) - LONGEST_SHOWN
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        text = ""
    is_text = bool(text) and all(character.isprintable() or character in "\n\t" for character in text)
    return (text if is_text else shown.hex(" ")) + (f" … and {rest} bytes more" if rest > 0 else "")


def _safe(text: str) -> str:
    """Text that does nothing to a terminal: it may come from whoever wrote the record."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _columns(rows: Sequence[Sequence[Any]]) -> str:
    safe = [[_safe(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in safe)


if __name__ == "__main__":
    commands()
