"""The commands and their options. Each command imports the module that does its work when it is called."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli.letter_commands import commands as dead_letter_commands
from penstock.cli.options import (
    Admin,
    Application,
    ApplicationId,
    AsJson,
    ConfigFile,
    Inputs,
    OptionalApplication,
    Settings,
    Token,
    Yes,
)
from penstock.errors import PenstockError
from penstock.version import __version__

# Imported by the command that needs them: Spark and the Kafka client take a second to import, and `--help` needs neither.
# ruff: noqa: PLC0415


class _Commands(TyperGroup):
    """Prints the error that ends a command in one line, and exits with its exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        from penstock.cli.screen import error_console, failure

        try:
            return super().invoke(ctx)
        except PenstockError as error:
            error_console().print(failure(error.code, str(error)))
            raise typer.Exit(error.exit_code) from error


commands: typer.Typer = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show variables, which may be secret
    help="Kafka Streams for Python, on Apache Spark.",
)
commands.add_typer(dead_letter_commands, name="dlq")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@commands.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


class Format(str, Enum):
    """The formats of `describe`."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"
    SVG = "svg"


TOPIC = "TOPIC[:PARTITION]"
ADMIN = "http://127.0.0.1:7070"


@commands.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The directory to create, and the application's id.")],
) -> None:
    """Create a project: a topology with its test and sample data, settings, and files to deploy it."""
    from penstock.cli.new import create_project, print_next_steps

    create_project(name, Path())
    print_next_steps(name)


@commands.command("try")
def try_(
    application: Application,
    inputs: Inputs = None,
    advance: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="After the last record, move the clock on: 10m. For timers and windows."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The maximum number of rows of a table.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Run a topology over files, without a broker, and show what it writes and stores.

    The operators are those of a running application. Functions that call other systems do call them.
    """
    from penstock.cli.applications import load_app
    from penstock.cli.trial import print_outcome, try_app

    print_outcome(try_app(load_app(application), inputs or (), advance), limit, as_json)


@commands.command()
def dev(
    application: Application,
    inputs: Inputs = None,
    kafka: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", envvar="KAFKA_HOME", help="An unpacked Apache Kafka: starts a broker for this command."
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Instead of --kafka: the brokers to use.")
    ] = None,
    config: ConfigFile = None,
    settings: Settings = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
) -> None:
    """Run an application while you write it: on the local engine, started again whenever a source file changes.

    Creates the topics of the topology that do not exist, and sends the records of --input once. Ends with Ctrl-C.
    """
    from penstock.cli.dev.session import Request, develop

    develop(Request(application, config, tuple(settings or ()), tuple(inputs or ()), open_browser), kafka, bootstrap_servers)


@commands.command()
def run(
    application: Application,
    config: ConfigFile = None,
    settings: Settings = None,
    until: Annotated[str | None, typer.Option(help="latest: process what the topics contain now, commit, and stop.")] = None,
    standby: Annotated[bool, typer.Option("--standby", help="Wait while another instance is active, then take over.")] = False,
) -> None:
    """Run an application until SIGTERM; the exit code says why it ended."""
    from penstock.cli.applications import load_app, overrides
    from penstock.errors import ConfigError

    if until not in {None, "latest"}:
        raise ConfigError(f"--until: invalid value {until!r}. The only value is 'latest'.")
    given = overrides(settings or ())
    load_app(application).run(until=until, path=config, **({**given, "standby": True} if standby else given))


@commands.command()
def describe(
    application: Application,
    how: Annotated[Format, typer.Option("--format", help="text is the format of Kafka Streams.")] = Format.TEXT,
) -> None:
    """Show a topology: its sources, processors, sinks and stores."""
    from penstock.cli.applications import load_app
    from penstock.cli.descriptions import description

    typer.echo(description(load_app(application), how.value), nl=False)


@commands.command()
def plan(application: Application, config: ConfigFile = None, settings: Settings = None, as_json: AsJson = False) -> None:
    """Show what a start would do to each committed store and source. Changes nothing.

    The exit code is 0 if nothing is lost, 5 if a store would be left behind, 4 if the start would be refused.
    """
    from penstock.cli.applications import load_app, load_config
    from penstock.cli.plan_report import print_plan
    from penstock.history.rehearsal import rehearse

    app = load_app(application)
    changes = rehearse(app.application_id, app.topology, app.error_handlers, load_config(config, settings or ()))
    raise typer.Exit(print_plan(app.application_id, changes, as_json))


@commands.command()
def reset(
    application: OptionalApplication = None,
    application_id: ApplicationId = None,
    config: ConfigFile = None,
    settings: Settings = None,
    to_earliest: Annotated[list[str] | None, typer.Option(metavar=TOPIC, help="Continue at the first record.")] = None,
    to_latest: Annotated[list[str] | None, typer.Option(metavar=TOPIC, help="Continue at the end.")] = None,
    to_time: Annotated[
        list[str] | None, typer.Option(metavar=f"{TOPIC}=TIME", help="Continue at a time: 2026-01-31T12:00:00Z.")
    ] = None,
    to_offset: Annotated[list[str] | None, typer.Option(metavar=f"{TOPIC}=OFFSET", help="Continue at an offset.")] = None,
    keep_state: Annotated[bool, typer.Option("--keep-state", help="Only move offsets; keep the stores as they are.")] = False,
    yes: Yes = False,
) -> None:
    """Delete an application's offsets, its stores on this machine, and its internal topics.

    Without --yes, only shows what would be done. The next start begins where the sources or --to-… say, with empty stores; with
    --keep-state, it keeps its stores. Each --to-… may be repeated.
    """
    from penstock.cli.applications import load_app, load_config
    from penstock.cli.goals import goals_of
    from penstock.cli.reset import reset_application
    from penstock.errors import ConfigError

    if (application is None) == (application_id is None):
        raise ConfigError("reset: name the application either as FILE:APP or by --application-id.")
    app = None if application is None else load_app(application)
    name = app.application_id if app is not None else application_id or ""
    goals = goals_of(to_earliest or (), to_latest or (), to_time or (), to_offset or ())
    topology = app.topology if app is not None else None
    reset_application(name, topology, load_config(config, settings or ()), yes, goals, keep_state)


@commands.command()
def savepoint(
    application: Application,
    to: Annotated[Path, typer.Option("--to", metavar="DIRECTORY", help="A new directory.")],
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Copy the committed state of a stopped application to a directory: stores, offsets, clocks."""
    from penstock.cli.applications import load_app, load_config
    from penstock.cli.savepoints import save_app

    save_app(load_app(application), load_config(config, settings or ()), to)


@commands.command()
def restore(
    application: Application,
    directory: Annotated[Path, typer.Option("--from", metavar="DIRECTORY", help="A savepoint.")],
    target_id: Annotated[
        str | None, typer.Option("--application-id", help="Restore under this id instead of the application's.")
    ] = None,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Restore a savepoint into an application without state: its next start continues from there.

    If it is interrupted, run it again: until then, the application refuses to start.
    """
    from penstock.cli.applications import load_app, load_config
    from penstock.cli.savepoints import restore_app

    restore_app(load_app(application), target_id, load_config(config, settings or ()), directory)


@commands.command()
def doctor(
    application: OptionalApplication = None,
    config: ConfigFile = None,
    settings: Settings = None,
    cluster: Annotated[bool, typer.Option("--cluster", help="Start executors, and check each.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check what an application needs: Java, jars, disk, brokers, topics, permissions, limits, schema registry.

    Shows how to fix each problem. Changes nothing.

    The exit code is 1 if a problem would prevent the application from running.
    """
    from penstock.cli.applications import load_app, overrides
    from penstock.cli.doctor import examine, print_findings

    findings = examine(None if application is None else load_app(application), config, overrides(settings or ()), cluster)
    raise typer.Exit(print_findings(findings, as_json))


@commands.command()
def query(
    sql: Annotated[str | None, typer.Argument(help="A SELECT; the stores are the tables.")] = None,
    store: Annotated[str | None, typer.Option(help="Instead of SQL: a store...")] = None,
    key: Annotated[str | None, typer.Option(help="...and one of its keys.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="The maximum number of rows.")] = 100,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV.")] = False,
    admin: Admin = ADMIN,
    token: Token = None,
) -> None:
    """Query the stores of a running application, as of its last commit."""
    from penstock.cli.query import ask_key, ask_sql, print_answer
    from penstock.cli.requests import AdminConnection
    from penstock.errors import ConfigError

    if (sql is None) == (store is None) or (store is None) != (key is None):
        raise ConfigError('query: give either SQL ("select …"), or --store with --key.')
    server = AdminConnection.at(admin, token)
    answer = ask_key(server, store, key) if store is not None and key is not None else ask_sql(server, sql or "", limit)
    print_answer(answer, "json" if as_json else "csv" if as_csv else "table")


@commands.command()
def pause(admin: Admin = ADMIN, token: Token = None) -> None:
    """Pause a running application: it commits the epochs that have begun, and begins no other until `resume`.

    Returns when they are committed. The application still answers queries and probes. A restart ends the pause.
    """
    from penstock.cli.controls import pause_application
    from penstock.cli.requests import AdminConnection

    pause_application(AdminConnection.at(admin, token))


@commands.command()
def resume(admin: Admin = ADMIN, token: Token = None) -> None:
    """End the pause of a running application."""
    from penstock.cli.controls import resume_application
    from penstock.cli.requests import AdminConnection

    resume_application(AdminConnection.at(admin, token))


@commands.command()
def lanes(
    number: Annotated[int | None, typer.Argument(metavar="[LANES]", help="The new number of lanes.")] = None,
    admin: Admin = ADMIN,
    token: Token = None,
) -> None:
    """Show how many lanes a running application has, or let it use another number of them.

    Returns when it processes records with them. The next start of the process uses the number of its settings.
    """
    from penstock.cli.controls import change_lanes, show_lanes
    from penstock.cli.requests import AdminConnection

    server = AdminConnection.at(admin, token)
    if number is None:
        show_lanes(server)
    else:
        change_lanes(server, number)


@commands.command()
def top(
    admin: Admin = ADMIN,
    token: Token = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
) -> None:
    """Watch a running application: epochs, rates, lag, lanes, stores."""
    from penstock.cli.requests import AdminConnection
    from penstock.cli.top import watch

    watch(AdminConnection.at(admin, token), every, is_once=once)
