"""`penstock savepoint` and `penstock restore`: take and restore savepoints, and print what they contain."""

from __future__ import annotations

from pathlib import Path

from penstock.app import App
from penstock.cli.screen import output_console, shown, table
from penstock.config import Config
from penstock.history.savepoint_files import Manifest
from penstock.history.savepoint_restore import restore_savepoint
from penstock.history.savepoints import take_savepoint
from penstock.history.truth import Truth, program_of
from penstock.kafka.clients import open_admin
from penstock.kafka.topics import Topics


def save_app(app: App, config: Config, directory: Path) -> None:
    """Take a savepoint, and print what it contains."""
    manifest = take_savepoint(app.application_id, config, directory)
    _print(manifest)
    console = output_console()
    for store in manifest.left_out:
        console.print(shown(f"Store {store!r} has no changelog, so the savepoint does not have it.", style="yellow"))
    console.print(shown(f"{app.application_id!r} is saved as of epoch {manifest.epoch} in {directory}."))


def restore_app(app: App, application_id: str | None, config: Config, directory: Path) -> None:
    """Restore a savepoint, and print what it contains."""
    name = application_id or app.application_id
    program = program_of(name, app.topology, app.error_handlers, config, incarnation="")
    truth = Truth(app.topology, program, config, Topics(open_admin(config), config.broker_timeout_ms))
    manifest = restore_savepoint(name, truth.internal_topics, config, directory)
    _print(manifest)
    what = f"{manifest.application_id!r} of {manifest.created}"
    output_console().print(shown(f"{name!r} is restored from the savepoint of {what}: its next start continues from there."))


def _print(manifest: Manifest) -> None:
    rows = [
        (store, f"{sum(file.rows for file in topic.files):,}", f"{sum(file.bytes for file in topic.files):,}")
        for store, topic in manifest.stores.items()
    ]
    output_console().print(table(("store", "records", "bytes"), rows))
