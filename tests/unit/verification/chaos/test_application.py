"""The process under test, with a stand-in: which processes are found and killed, and how exits are recorded."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from verification.chaos.application import Application, Part
from verification.harness.processes import HarnessError, wait_until

STAND_IN = """
import os, signal, subprocess, sys, time
os.environ["CHILD"] = "yes"
child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(60)"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", os.environ["SAID"], os.environ.get("PENSTOCK_FAULT"), os.environ.get("CHAOS_VICTIM"), flush=True)
if os.environ.get("PENSTOCK_FAULT"):
    os.makedirs(os.environ["PENSTOCK_FAULT_DIR"])
    with open(os.environ["PENSTOCK_FAULT_DIR"] + "/fired", "w") as fired:
        fired.write("a.point kill 1.0\\n")
if os.environ["SAID"] == "fail":
    child.kill()
    sys.exit(13)
time.sleep(60)
"""

Make = Callable[[], Application]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Application] = []

    def application() -> Application:
        environment = {"SAID": "hello", "PENSTOCK_STATE_DIR": str(tmp_path / "state")}
        made.append(Application(tmp_path / "first", environment, [sys.executable, "-c", STAND_IN]))
        return made[-1]

    yield application
    for closed in made:
        closed.close()
    wait_until("all have ended", lambda: not any(closed.processes() for closed in made), 10)


def ready(application: Application) -> None:
    wait_until("the stand-in is ready", lambda: "ready" in application.log.read_text(), 20)
    wait_until("its child is there", lambda: len(application.processes()) == 2, 20)


def test_it_runs_with_its_environment(make: Make) -> None:
    application = make()
    application.start("a.point:3:kill", Part.WORKER)
    ready(application)
    assert application.is_running
    assert application.log.read_text() == "ready hello a.point:3:kill worker\n"
    wait_until("the point fires", lambda: application.fired == 1, 10)
    with pytest.raises(HarnessError, match="is already running"):
        application.start()


def test_a_clean_stop(make: Make) -> None:
    application = make()
    application.start()
    ready(application)
    assert application.stop() == 0
    (ended,) = application.exits
    assert ended.was_asked
    assert application.fired == 0


def test_the_driver_alone_is_killed_and_the_rest_is_still_found(make: Make) -> None:
    application = make()
    application.start()
    ready(application)
    assert application.kill(Part.DRIVER)
    assert application.wait(10) == -signal.SIGKILL
    (left,) = application.processes()
    application.start()
    assert application.log.name == "start-002.log"
    application.close()
    wait_until("it has ended, too", lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, 10)


def test_all_are_killed_at_once(make: Make) -> None:
    application = make()
    application.start()
    ready(application)
    assert application.kill(Part.ALL)
    application.wait(10)
    wait_until("no process is left", lambda: not application.processes(), 10)


def test_killing_a_missing_worker_does_nothing(make: Make) -> None:
    application = make()
    assert not application.kill(Part.DRIVER)
    application.start()
    ready(application)
    assert not application.kill(Part.WORKER)
    time.sleep(0.1)
    assert application.is_running


def test_an_exit_by_itself_differs_from_a_requested_one(make: Make) -> None:
    application = make()
    application.start(SAID="fail")
    assert application.wait(20) == 13
    application.change(SAID="fail")
    application.start("a.point:1:kill")
    assert application.wait(20) == 13
    application.start("a.point:1:sleep=1")
    assert application.wait(20) == 13
    assert [(ended.code, ended.was_asked) for ended in application.exits] == [(13, False), (13, True), (13, False)]


def test_waiting_times_out(make: Make) -> None:
    application = make()
    application.start()
    with pytest.raises(HarnessError, match="the application ends"):
        application.wait(0.05)


def test_without_a_jvm_all_processes_are_killed_instead(make: Make) -> None:
    application = make()
    application.start()
    ready(application)
    assert application.kill(Part.JVM)
    assert application.wait(10) < 0
