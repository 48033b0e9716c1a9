"""How the tasks of the lane job register with the driver, without Spark."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from pyspark import TaskContext

from penstock.engines import serving
from penstock.engines.connections import connected
from penstock.engines.messages import Kind, receive, send
from penstock.engines.port import LateError, SlotLostError
from penstock.engines.requests import Load
from penstock.engines.serving import Totals
from penstock.errors import StateError
from penstock.spark import registration as module
from penstock.spark.lane_task import Hello, LaneTask, address_here, introduce
from penstock.spark.registration import Registration
from penstock.state.remote.hand_shakes import HandShakes
from tests.unit.engines.programs import nothing, stateless
from tests.unit.epochs.application import program_of

PROGRAM: bytes = cloudpickle.dumps((program_of(stateless()), nothing))
PATIENCE_S = 20.0


@pytest.fixture(params=["unix", "network"])
def registration(request: pytest.FixtureRequest) -> Iterator[Registration]:
    with closing(Registration(PROGRAM, None if request.param == "unix" else "127.0.0.1")) as made:
        yield made


@pytest.fixture
def unix() -> Iterator[Registration]:
    with closing(Registration(PROGRAM, None)) as made:
        yield made


@pytest.fixture
def network() -> Iterator[Registration]:
    with closing(Registration(PROGRAM, "127.0.0.1", lambda host: host != "gone")) as made:
        yield made


def registered(at: Registration, position: int, task: int, host: str = "host", process: int = 0) -> socket.socket:
    """The connection of a task that has said hello; the driver may have refused it since."""
    connection = connected(at.address, at.key)
    introduce(connection, at.key, Hello(position, task, process, host))
    return connection


def accepted(at: Registration, position: int, task: int, host: str = "host", process: int = 0) -> socket.socket:
    """The connection of a task whose slot is there."""
    before = at.live.get(position)
    connection = registered(at, position, task, host, process)
    assert receive(connection)[0] is Kind.PROGRAM
    assert at.wait_for(lambda: at.live.get(position) not in {None, before}, PATIENCE_S)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the driver has closed it; what it has sent before does not matter."""
    connection.settimeout(PATIENCE_S)
    try:
        while True:
            receive(connection)
    except TimeoutError:
        return False
    except (EOFError, OSError):
        return True


def test_a_task_that_knows_the_key_becomes_the_slot_of_its_position(registration: Registration) -> None:
    with closing(registered(registration, 3, 7, process=42)) as task:
        kind, program = receive(task)
        assert (kind, program.to_pybytes()) == (Kind.PROGRAM, PROGRAM)
        assert registration.wait_for(lambda: bool(registration.live), PATIENCE_S)
        [(position, slot)] = registration.live.items()
        assert (position, slot.host, slot.process, registration.hosts) == (3, "host", 42, {"host": 1})


def test_a_task_that_does_not_is_refused(unix: Registration, caplog: pytest.LogCaptureFixture) -> None:
    with closing(connected(unix.address, b"other" * 8)) as task:
        introduce(task, b"other" * 8, Hello(0, 1, 0, "host"))
        assert is_closed(task)
    assert unix.live == {}
    assert "refused a connection to the slots' listener: it does not know the key" in caplog.text


def test_on_a_network_it_cannot_even_connect(network: Registration, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises((StateError, EOFError, OSError)):
        introduce(connected(network.address, b"o" * 32), b"o" * 32, Hello(0, 1, 0, "host"))
    assert network.live == {}


@pytest.mark.parametrize("said", [b"", b"x" * 5, b"x" * 200])
def test_one_that_talks_nonsense_is_refused_and_others_are_not(unix: Registration, said: bytes) -> None:
    with closing(connected(unix.address, unix.key)) as stranger, closing(connected(unix.address, unix.key)) as silent:
        receive(stranger)
        send(stranger, Kind.HELLO, said)
        assert is_closed(stranger)
        with closing(accepted(unix, 0, 1)):
            assert list(unix.live) == [0]
        assert silent.fileno() >= 0


def test_a_greeting_is_of_use_only_once(unix: Registration) -> None:
    """Whoever has heard one cannot repeat it: the driver challenges each connection anew."""
    with closing(connected(unix.address, unix.key)) as one, closing(connected(unix.address, unix.key)) as other:
        assert receive(one)[1].to_pybytes() != receive(other)[1].to_pybytes()


def test_one_that_says_nothing_is_given_up(unix: Registration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELLO_S", 0.05)
    with closing(connected(unix.address, unix.key)) as task:
        assert is_closed(task)
    assert unix.live == {}


def test_strangers_who_say_nothing_are_few_at_a_time_and_no_task_waits_for_them() -> None:
    before = threading.active_count()
    with closing(Registration(PROGRAM, "127.0.0.1")) as made, ExitStack() as opened:
        made._hand_shakes = HandShakes(2)
        assert not isinstance(made.address, str)
        for _ in range(6):
            opened.enter_context(socket.create_connection(made.address))
        time.sleep(0.2)
        assert threading.active_count() - before <= 1 + 2
        with closing(accepted(made, 0, 1)):
            assert list(made.live) == [0]


def test_a_later_task_replaces_an_earlier_one(registration: Registration) -> None:
    with closing(accepted(registration, 0, 1)) as early:
        first = registration.live[0]
        with closing(accepted(registration, 0, 2)):
            assert first.is_lost
            assert is_closed(early)
            assert registration.hosts == {"host": 1}


def test_an_earlier_task_that_comes_late_is_refused(registration: Registration) -> None:
    with closing(accepted(registration, 0, 2)):
        slot = registration.live[0]
        with closing(registered(registration, 0, 1)) as late:
            assert is_closed(late)
        assert registration.live == {0: slot}
        assert not slot.is_lost


def test_positions_are_independent(registration: Registration) -> None:
    with (
        closing(accepted(registration, 1, 5, "b")),
        closing(accepted(registration, 0, 4, "a")),
        closing(accepted(registration, 2, 1, "b")),
    ):
        assert list(registration.live) == [0, 1, 2]
        assert registration.hosts == {"a": 1, "b": 2}
        registration.close_slots({0, 2})
        assert (list(registration.live), registration.hosts) == ([1], {"b": 1})


def test_who_waits_is_woken_by_a_slot_or_by_a_notice(unix: Registration) -> None:
    assert not unix.wait_for(lambda: bool(unix.live), 0.01)
    tasks: list[socket.socket] = []
    threading.Timer(0.05, lambda: tasks.append(registered(unix, 0, 1))).start()
    assert unix.wait_for(lambda: bool(unix.live), PATIENCE_S)
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        unix.notify()

    threading.Timer(0.05, fail).start()
    assert unix.wait_for(failed.is_set, PATIENCE_S)
    for task in tasks:
        task.close()


def test_on_one_machine_only_this_user_can_reach_the_driver(unix: Registration) -> None:
    assert isinstance(unix.address, str)
    directory = Path(unix.address).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    unix.close()
    assert not directory.exists()


def test_a_closed_listener_accepts_nobody_and_has_ended_its_slots(registration: Registration) -> None:
    with closing(accepted(registration, 0, 1)) as task:
        registration.close()
        assert is_closed(task)
    assert registration.live == {}
    family = socket.AF_UNIX if isinstance(registration.address, str) else socket.AF_INET
    with socket.socket(family) as other, pytest.raises((ConnectionRefusedError, FileNotFoundError)):
        other.connect(registration.address)


def test_a_slot_of_a_host_that_is_gone_is_lost(network: Registration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.watching._LOOK_EVERY_S", 0.01)
    with closing(accepted(network, 0, 1, "gone")), pytest.raises(SlotLostError, match="its host does not answer"):
        network.live[0].ask(Load())


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_only_a_process_of_this_machine_is_ended_if_it_is_late(host: str | None) -> None:
    """Elsewhere its number belongs to another process."""
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process,
        closing(Registration(PROGRAM, host)) as registration,
    ):
        with closing(accepted(registration, 0, 1, process=process.pid)), pytest.raises(LateError):
            registration.live[0].ask(Load(), deadline=time.monotonic())
        if host is None:
            assert process.wait(PATIENCE_S) < 0
        else:
            assert process.poll() is None
            process.kill()


class TestTheAddressOfAHost:
    @pytest.fixture(autouse=True)
    def _untold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
        monkeypatch.delenv("SPARK_LOCAL_HOSTNAME", raising=False)

    @pytest.fixture
    def driver(self) -> Any:
        return SimpleNamespace(family=socket.AF_INET, getsockname=lambda: ("10.1.2.3", 4711))

    def test_is_that_from_which_it_reaches_the_driver(self, driver: Any) -> None:
        assert address_here(driver) == "10.1.2.3"
        driver.family, driver.getsockname = socket.AF_INET6, lambda: ("fe80::1%eth0", 4711, 0, 2)
        assert address_here(driver) == "fe80::1%eth0"

    @pytest.mark.parametrize("name", ["SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"])
    def test_unless_it_was_told_another(self, driver: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, "b.example.com")
        assert address_here(driver) == "b.example.com"

    def test_a_loopback_address_is_none_and_a_single_machine_has_a_name(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as driver:
            assert address_here(driver) == socket.gethostname()
        with socket.socket(socket.AF_UNIX) as alone:
            assert address_here(alone) == socket.gethostname()


class TestTheTask:
    @pytest.fixture(autouse=True)
    def _in_a_task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(taskAttemptId=lambda: 11))
        monkeypatch.setattr(serving, "_programs", {})
        monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")

    def started(self, at: Registration, position: int) -> tuple[threading.Thread, list[Totals]]:
        """A task in a thread, and what it has yielded."""
        found: list[Totals] = []
        task: LaneTask = cloudpickle.loads(cloudpickle.dumps(LaneTask(at.address, at.key)))
        thread = threading.Thread(target=lambda: found.extend(task(iter([position]))))
        thread.start()
        return thread, found

    def test_it_serves_until_the_driver_closes_and_yields_what_it_has_done(self, registration: Registration) -> None:
        thread, found = self.started(registration, 5)
        assert registration.wait_for(lambda: bool(registration.live), PATIENCE_S)
        slot = registration.live[5]
        assert (slot.host, slot.process) == ("10.0.0.7", os.getpid())
        for _ in range(3):
            assert slot.ask(Load()).size == 0
        slot.close()
        thread.join(PATIENCE_S)
        assert [totals.requests for totals in found] == [3]

    def test_one_that_is_refused_just_ends(self, unix: Registration) -> None:
        with closing(accepted(unix, 5, 12)):
            thread, found = self.started(unix, 5)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            assert sum(totals.requests for totals in found) == 0
            assert unix.live

    def test_its_key_is_not_shown(self, unix: Registration) -> None:
        assert repr(unix.key)[2:-1] not in repr(LaneTask(unix.address, unix.key))
