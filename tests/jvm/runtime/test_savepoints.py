"""Savepoints on a real broker: what is restored continues as the original does, however often the restore is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock import App
from penstock.cli.commands import commands
from penstock.errors import StateError
from penstock.history.savepoint_files import MANIFEST, SavepointDirectory
from tests.jvm.runtime.cases import LocalCase, counts_and_windows
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm

FILE = """
from penstock import App
from tests.jvm.runtime.cases import counts_and_windows

app = App({id!r}, counts_and_windows("{id}-in", "{id}-out"))
"""


class Case(LocalCase):
    """It can be saved, and restored with other results."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        super().__init__(broker, directory, FILE)
        self.saved = directory / "savepoint"
        topics.create(self.servers, f"{self.id}-copy", partitions=1)

    @property
    def settings(self) -> dict[str, Any]:
        """Without the number of shards once there is a savepoint, which has it."""
        return {name: value for name, value in super().settings.items() if name != "shards" or not self.saved.exists()}

    def app(self, application_id: str = "", out: str = "out") -> App:
        return App(application_id or self.id, counts_and_windows(f"{self.id}-in", f"{self.id}-{out}"))

    def run(self, application_id: str = "", out: str = "out") -> None:
        self.run_to_the_end(self.app(application_id, out))

    def call(self, command: str, *more: str) -> Result:
        return CliRunner().invoke(commands, self.arguments(command, *more), env={"COLUMNS": "200"})

    def save(self) -> None:
        done = self.call("savepoint", "--to", str(self.saved))
        assert done.exit_code == 0, done.output

    def restore(self, application_id: str) -> Result:
        return self.call("restore", "--from", str(self.saved), "--application-id", application_id)

    def restore_dies_at(self, point: str, application_id: str) -> None:
        self.dies_at(point, "restore", "--from", str(self.saved), "--application-id", application_id)


@pytest.fixture
def case(broker: Broker, tmp_path: Path) -> Case:
    return Case(broker, tmp_path)


@pytest.mark.slow  # several starts
def test_a_copy_continues_exactly_as_the_original_does(case: Case) -> None:
    case.send(1, 2, 11)
    case.run()
    before = case.results()
    case.save()
    case.send(5, 12, 21, 35)  # the first is too late for its window: that is known only by the stream time of the savepoint
    case.run()
    copy = f"{case.id}-copy"
    done = case.restore(copy)
    assert done.exit_code == 0, done.output
    case.run(copy, "copy")
    expected = case.results()[len(before) :]
    assert any(b"@10000" in (key or b"") for key, _, _ in expected)  # a window that was open, and held back, at the savepoint
    assert case.results("copy") == expected
    manifest = SavepointDirectory(case.saved).read()
    assert {offset.offset for offset in manifest.offsets} == {15}
    assert (manifest.application_id, manifest.shards) == (case.id, 4)


@pytest.mark.slow
def test_an_application_is_restored_after_a_reset(case: Case) -> None:
    case.send(1)
    case.run()
    before = case.results()
    case.save()
    case.send(2)
    case.run()
    expected = case.results()[len(before) :]
    refused = case.call("restore", "--from", str(case.saved))
    assert refused.exit_code == 13, refused.output
    assert "has state" in refused.output
    assert case.call("reset", "--yes").exit_code == 0
    assert case.call("restore", "--from", str(case.saved)).exit_code == 0
    seen = len(case.results())
    case.run()
    assert case.results()[seen:] == expected


@pytest.mark.parametrize(
    "point",
    [
        *(pytest.param(point, marks=pytest.mark.slow) for point in ("restoration.begun", "restoration.chunk")),  # 25 s each
        "restoration.offsets",
    ],
)
def test_a_restore_that_was_killed_is_completed_by_another(case: Case, point: str) -> None:
    case.send(1, keys=25_000)
    case.run()
    case.save()
    copy = f"{case.id}-copy"
    case.restore_dies_at(point, copy)
    with pytest.raises(StateError, match="was interrupted: its state is not complete"):
        case.run(copy, "copy")
    done = case.restore(copy)
    assert done.exit_code == 0, done.output
    case.send(2, 12)
    case.run(copy, "copy")
    seen = len(case.results())
    case.run()
    assert case.results("copy") == case.results()[seen:]
    assert (b"k0", (3).to_bytes(8, "big"), 12_000) in case.results("copy")


@pytest.mark.slow  # several starts
def test_an_interrupted_restore_can_be_reset(case: Case) -> None:
    case.send(1)
    case.run()
    case.save()
    copy = f"{case.id}-copy"
    case.restore_dies_at("restoration.offsets", copy)
    servers = ("--set", f"bootstrap_servers={case.servers}", "--set", f"state_dir={case.directory / 'state'}")
    done = CliRunner().invoke(commands, ["reset", "--application-id", copy, "--yes", *servers])
    assert done.exit_code == 0, done.output
    assert not {name for name in topics.names(case.servers) if name.startswith(copy) and name.endswith("-changelog")}


def test_nothing_is_saved_of_a_running_application(case: Case) -> None:
    assert "nothing to save" in case.call("savepoint", "--to", str(case.saved)).output
    case.send(1)
    with case.app().start(**case.settings) as running:
        assert running.wait_until_running(120)
        wait_until("the first results", lambda: len(case.results()) == 5, 60)
        refused = case.call("savepoint", "--to", str(case.saved))
        running.stop()
        running.wait(60)
    assert refused.exit_code == 13, refused.output
    assert "is running on this machine" in refused.output
    assert not (case.saved / MANIFEST).exists()


def test_a_topic_that_was_created_again_has_other_offsets(case: Case) -> None:
    case.send(1)
    case.run()
    case.save()
    topics.delete(case.servers, f"{case.id}-in")
    topics.create(case.servers, f"{case.id}-in", partitions=1)
    refused = case.restore(f"{case.id}-copy")
    assert refused.exit_code == 12, refused.output
    assert "is not the one that the application has read" in refused.output
