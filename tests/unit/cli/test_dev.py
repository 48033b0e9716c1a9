"""`penstock dev` without a real broker: where it finds Kafka, how it starts and stops processes, and when it starts again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import App, StreamsBuilder
from penstock.cli.dev import session
from penstock.cli.dev.broker import LocalBroker, end_process, find_jars
from penstock.cli.dev.changes import SourceFiles, source_directory
from penstock.cli.dev.feeding import Prepared, _row
from penstock.cli.dev.session import ApplicationProcess, Request, dashboard, develop
from penstock.cli.samples.records import read_samples
from penstock.config import Config
from penstock.errors import BrokerError, ConfigError
from penstock.serdes import Int64, String
from tests.unit.cli.calling import call

FAKE_JAVA = """#!{python}
import signal, socket, sys, time
if "kafka.tools.StorageTool" in sys.argv:
    sys.exit({format_code})
if {code}:
    print("no heap")
    sys.exit({code})
settings = dict(line.strip().split("=", 1) for line in open(sys.argv[-1]))
host, port = settings["advertised.listeners"].split("://")[1].split(":")
server = socket.create_server((host, int(port)))
signal.pause()
"""


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


class TestKafka:
    def test_without_kafka_it_says_how_to_get_it(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"https://kafka\.apache\.org/downloads") as raised:
            find_jars(None)
        assert all(word in str(raised.value) for word in ("--bootstrap-servers", "--kafka", "KAFKA_HOME", "Java 17"))
        with pytest.raises(ConfigError, match="there is no Kafka in --kafka"):
            find_jars(tmp_path)

    @pytest.mark.parametrize("place", ["libs", "."])
    def test_an_unpacked_release_or_its_jars(self, tmp_path: Path, place: str) -> None:
        directory = tmp_path / place
        directory.mkdir(exist_ok=True)
        (directory / "kafka_2.13-4.3.1.jar").write_text("")
        assert find_jars(tmp_path) == directory.absolute()

    def test_the_command_says_it_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KAFKA_HOME", raising=False)
        monkeypatch.setattr(sys, "path", list(sys.path))
        path = tmp_path / "penstock_cli_dev_none.py"
        path.write_text("from penstock import App, Topology\napp = App('a', Topology())\n")
        found = call("dev", str(path))
        assert found.exit_code == 2
        assert "config: dev: no broker." in found.output
        found = call("dev", str(path), KAFKA_HOME=str(tmp_path))
        assert "there is no Kafka in" in found.output


@pytest.fixture
def install_java(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets JAVA_HOME to something that does what a broker would."""

    def install(code: int = 0, format_code: int = 0) -> None:
        home = tmp_path_factory.mktemp("java")
        java = home / "bin" / "java"
        java.parent.mkdir()
        java.write_text(FAKE_JAVA.format(python=sys.executable, code=code, format_code=format_code))
        java.chmod(0o755)
        (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
        monkeypatch.setenv("JAVA_HOME", str(home))

    return install


class TestBroker:
    @pytest.fixture
    def broker(self, tmp_path: Path, install_java: Callable[..., None]) -> Callable[..., LocalBroker]:
        def made(code: int = 0, format_code: int = 0) -> LocalBroker:
            install_java(code, format_code)
            return LocalBroker(tmp_path, tmp_path)

        return made

    def test_it_listens_while_it_is_open(self, broker: Callable[..., LocalBroker]) -> None:
        made = broker()
        host, port = made.bootstrap_servers.split(":")
        with made:
            socket.create_connection((host, int(port))).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))

    def test_it_is_reachable_from_this_machine_only(self, broker: Callable[..., LocalBroker]) -> None:
        settings = broker().settings()
        addresses = [settings[name] for name in ("listeners", "advertised.listeners", "controller.quorum.voters")]
        assert all("127.0.0.1:" in each for text in addresses for each in text.split(","))

    def test_a_broker_that_ends_is_an_error_with_what_it_wrote(self, broker: Callable[..., LocalBroker]) -> None:
        with pytest.raises(BrokerError, match=r"ended with exit code 3\. It wrote:\nno heap"), broker(code=3):
            pass

    def test_a_storage_that_cannot_be_formatted_is_an_error(self, broker: Callable[..., LocalBroker]) -> None:
        with pytest.raises(BrokerError, match="cannot format its storage"), broker(format_code=1):
            pass

    def test_an_old_java_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        (tmp_path / "release").write_text('JAVA_VERSION="11"\n')
        with pytest.raises(ConfigError, match=r"A local broker needs Java 17 or later, but .* is Java 11.*--bootstrap-servers"):
            LocalBroker(tmp_path, tmp_path)


class TestChanges:
    def test_changed_added_and_removed_files_are_found_once(self, tmp_path: Path) -> None:
        (tmp_path / "inner").mkdir()
        for name in ("app.py", "inner/other.py", "penstock.toml"):
            (tmp_path / name).write_text("1")
        files = SourceFiles(tmp_path)
        assert files.changed() == []
        (tmp_path / "app.py").write_text("1 + 1")
        (tmp_path / "inner" / "new.py").write_text("")
        (tmp_path / "penstock.toml").unlink()
        assert files.changed() == [Path("app.py"), Path("inner/new.py"), Path("penstock.toml")]
        assert files.changed() == []

    def test_what_is_no_source_is_not_looked_at(self, tmp_path: Path) -> None:
        for name in (".git", "__pycache__", "env"):
            (tmp_path / name).mkdir()
        (tmp_path / "env" / "pyvenv.cfg").write_text("")
        files = SourceFiles(tmp_path)
        for name in (".git/a.py", "__pycache__/b.py", "env/c.py", "data.jsonl"):
            (tmp_path / name).write_text("")
        assert files.changed() == []

    def test_the_directory_is_that_of_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert source_directory("inner/app.py:app") == tmp_path / "inner"
        assert source_directory("app.py") == tmp_path
        assert source_directory("package.module:app") == tmp_path


DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


class TestProcess:
    def test_it_stops_and_starts_again(self) -> None:
        process = ApplicationProcess([sys.executable, "-c", "import time; time.sleep(600)"])
        process.start()
        assert process.take_exit_code() is None
        process.stop()
        process.stop()
        assert process.take_exit_code() is None

    def test_an_interrupt_while_it_ends_is_not_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read(1)

        def interrupted(timeout: float | None = None) -> int:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(process, "wait", interrupted)
        with process.stdout, pytest.raises(KeyboardInterrupt):
            end_process(process, 60)
        assert process.returncode == -signal.SIGKILL

    def test_one_that_does_not_end_is_killed(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout as output:
            output.read(1)
            end_process(process, 0.05)
        assert process.returncode == -signal.SIGKILL

    def test_an_exit_code_is_told_once(self) -> None:
        process = ApplicationProcess([sys.executable, "-c", "raise SystemExit(12)"])
        process.start()
        code = None
        end = time.monotonic() + 20
        while code is None and time.monotonic() < end:
            time.sleep(0.02)
            code = process.take_exit_code()
        assert code == 12
        assert process.take_exit_code() is None
        process.stop()


def config(**overrides: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers="b:1", **overrides)


class TestDashboard:
    def test_its_address(self) -> None:
        assert dashboard(config()) == "http://127.0.0.1:7070/"
        assert dashboard(config(admin_address="127.0.0.1:0")) is None
        assert dashboard(config(admin_address="off")) is None
        assert dashboard(config(admin_certificate="a", admin_key="b")) == "https://127.0.0.1:7070/"


APPLICATION = """
from penstock import App, StreamsBuilder
builder = StreamsBuilder()
builder.stream("in", value=str).to("out", value=str)
app = App("developed", builder.build())
"""
CHILD = "import sys, time; open(sys.argv[1], 'a').write('started\\n'); time.sleep(600)"


class Developed:
    """A session in which no broker is asked and the application is only a process that notes its starts."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, child: str = CHILD) -> None:
        self.source = directory / "penstock_cli_developed.py"
        self.source.write_text(APPLICATION)
        self.input = directory / "in.jsonl"
        self.input.write_text('"a"\n"b"\n')
        self.prepared: list[tuple[Any, ...]] = []
        self.commands: list[list[str]] = []
        self.opened: list[str] = []
        self._starts = directory / "starts"
        noted = self.commands

        class Child(ApplicationProcess):
            def __init__(self, command: list[str]) -> None:
                noted.append(command)
                super().__init__([sys.executable, "-c", child, str(directory / "starts")])

        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "penstock_cli_developed", raising=False)
        monkeypatch.setattr(session, "prepare_brokers", self._prepare)
        monkeypatch.setattr(session, "ApplicationProcess", Child)
        monkeypatch.setattr(session, "_LOOK_EVERY_S", 0.05)
        monkeypatch.setattr("webbrowser.open", self.opened.append)

    def _prepare(self, app: App, config: Config, samples: Any) -> Prepared:
        self.prepared.append((app.application_id, config.engine, config.create_topics, len(samples.streams)))
        return Prepared(["in", "out"], len(samples.streams))

    @property
    def starts(self) -> int:
        return len(self._starts.read_text().splitlines()) if self._starts.exists() else 0

    def run(self, use: Callable[[], None], kafka: Path | None, servers: str | None, *settings: str, opens: bool = False) -> None:
        """Run it; end it once `use` has returned."""

        def used() -> None:
            wait_until(lambda: self.starts == 1)
            use()
            os.kill(os.getpid(), signal.SIGTERM)

        user = threading.Thread(target=used)
        user.start()
        develop(Request(str(self.source), None, settings, (f"in={self.input}",), opens), kafka, servers)
        user.join()


class TestSession:
    def test_it_prepares_runs_starts_again_and_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        developed = Developed(tmp_path, monkeypatch)

        def change() -> None:
            developed.source.write_text(APPLICATION + "\n# changed\n")
            wait_until(lambda: developed.starts == 2)

        developed.run(change, None, "b:1", "lanes=2")
        assert developed.prepared == [("developed", "local", True, 2)]
        [command] = developed.commands
        assert command[1:5] == ["-m", "penstock.cli", "run", str(developed.source)]
        assert command[5:] == [
            *("--set", "engine=local", "--set", "create_topics=true", "--set", "lanes=2", "--set", "bootstrap_servers=b:1")
        ]
        assert developed.opened == []
        said = capsys.readouterr().err
        assert "created the topics in, out" in said
        assert "sent 2 records" in said
        assert "dashboard: http://127.0.0.1:7070/" in said
        assert "penstock_cli_developed.py changed: starting again" in said
        assert "stopping" in said

    def test_a_broker_of_its_own_leaves_nothing_behind(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install_java: Callable[..., None]
    ) -> None:
        install_java()
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        (tmp_path / "kafka_2.13-4.3.1.jar").write_text("")
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        developed = Developed(tmp_path, monkeypatch)
        developed.run(lambda: None, tmp_path, None)
        given = dict(setting.split("=", 1) for setting in developed.commands[0][6::2])
        assert Path(given["state_dir"]).is_relative_to(temporary)
        assert given["kafka.security.protocol"] == "PLAINTEXT"
        assert list(temporary.iterdir()) == []
        host, port = given["bootstrap_servers"].split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))

    def test_an_application_that_ends_is_started_again_after_a_change(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        developed = Developed(tmp_path, monkeypatch, CHILD.replace("time.sleep(600)", "sys.exit(12)"))

        def change() -> None:
            time.sleep(0.5)
            assert developed.starts == 1
            developed.source.write_text(APPLICATION + "\n# changed\n")
            wait_until(lambda: developed.starts == 2)

        developed.run(change, None, "b:1")
        assert "the application ended with exit code 12; it starts again when a file changes" in capsys.readouterr().err

    def test_the_dashboard_is_opened_once_it_answers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        developed = Developed(tmp_path, monkeypatch)
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{server.getsockname()[1]}"

            def answer() -> None:
                time.sleep(0.3)
                assert developed.opened == []
                server.listen()
                wait_until(lambda: bool(developed.opened))
                time.sleep(0.2)

            developed.run(answer, None, "b:1", f"admin_address={address}", opens=True)
        assert developed.opened == [f"http://{address}/"]


class TestFeeding:
    def test_a_sample_becomes_a_row_by_the_serdes_of_its_source(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream("in", key=str, value=int).to("out")
        path = tmp_path / "in.jsonl"
        path.write_text('{"key": "k", "value": 7, "timestamp": 5, "headers": {"a": "b"}}\n{"value": null}\n')
        first, second = read_samples([f"in={path}"], builder.build(), now=0).streams
        assert _row(first, ["in"], String(), Int64()) == {
            "name": 0,
            "partition": None,
            "timestamp": 5,
            "key": b"k",
            "value": bytes(7) + b"\x07",
            "headers": [{"name": "a", "value": b"b"}],
        }
        row = _row(second, ["other", "in"], String(), Int64())
        assert (row["name"], row["key"], row["value"], row["headers"]) == (1, None, None, None)

    def test_a_value_that_cannot_be_written_names_its_line(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=int).to("out")
        path = tmp_path / "in.jsonl"
        path.write_text(f"{2**63}\n")
        [sample] = read_samples([f"in={path}"], builder.build(), now=0).streams
        with pytest.raises(ConfigError, match=r"in\.jsonl:1: Int64 cannot write"):
            _row(sample, ["in"], String(), Int64())
