"""The commands of `penstock dlq` and their options; each imports `dead_letters`, which does the work, when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import ApplicationId, AsJson, ConfigFile, OptionalApplication, Settings, Yes
from penstock.letters import Target

# Imported by the command that needs them, as in `commands`.
# ruff: noqa: PLC0415

commands: typer.Typer = typer.Typer(no_args_is_help=True, help="List, show and replay dead letters.")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic.")]


@commands.command("ls")
def list_letters(topic: TopicName, config: ConfigFile = None, settings: Settings = None, as_json: AsJson = False) -> None:
    """List the number of letters by application, node, error and source topic, and when they failed."""
    from penstock.cli.applications import load_config
    from penstock.cli.dead_letters import print_groups

    print_groups(load_config(config, settings or ()), topic, as_json)


@commands.command()
def show(
    topic: TopicName,
    partition: Annotated[int | None, typer.Option(min=0, help="The letter's partition in the dead-letter topic.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="The letter's offset in that partition.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of letters, oldest first.")] = 1,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Show letters in full: their origin, what failed and where, key, value and headers."""
    from penstock.cli.applications import load_config
    from penstock.cli.dead_letters import print_letters
    from penstock.errors import ConfigError

    if (partition is None) != (offset is None):
        raise ConfigError("show: --partition and --offset together name one letter. Give both, or --limit.")
    place = None if partition is None or offset is None else (partition, offset)
    print_letters(load_config(config, settings or ()), topic, place, limit)


@commands.command()
def replay(
    topic: TopicName,
    application: OptionalApplication = None,
    application_id: ApplicationId = None,
    config: ConfigFile = None,
    settings: Settings = None,
    to: Annotated[
        Target, typer.Option(help="source: through the source topic, for all nodes; node: only into the node that failed.")
    ] = Target.SOURCE,
    node: Annotated[str | None, typer.Option(help="Only letters of this node.")] = None,
    error: Annotated[str | None, typer.Option(help="Only letters of this error, with or without its module.")] = None,
    source_topic: Annotated[str | None, typer.Option(help="Only letters of records from this topic.")] = None,
    since: Annotated[str | None, typer.Option(help="Only what failed at or after this time: 2024-05-01T12:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Only what failed before this time.")] = None,
    offset: Annotated[list[str] | None, typer.Option(metavar="P:O[-O]", help="Only these letters; may be repeated.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The maximum number of letters.")] = None,
    max_attempts: Annotated[int, typer.Option(min=1, help="Skip letters that were already replayed this often.")] = 3,
    yes: Yes = False,
) -> None:
    """Send the records of letters through the application again, exactly once each.

    Without --yes, only shows what would be done. The default application is that of the oldest letter; --to node needs FILE:APP.
    """
    from penstock.cli.applications import load_app, load_config
    from penstock.cli.dead_letters import ReplayRequest, replay_letters
    from penstock.letters import Choice, Span
    from penstock.timing import instant_ms

    choice = Choice(
        node=node,
        error=error,
        source_topic=source_topic,
        since_ms=None if since is None else instant_ms(since, "--since"),
        until_ms=None if until is None else instant_ms(until, "--until"),
        spans=tuple(map(Span.read, offset or ())),
    )
    app = None if application is None else load_app(application)
    request = ReplayRequest(topic, choice, to, limit, max_attempts, is_confirmed=yes)
    replay_letters(load_config(config, settings or ()), request, app, application_id)
