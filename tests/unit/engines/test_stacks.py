"""What the code of slots is doing now is known, also if it hangs; and no process is ended by the question."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import penstock
from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.requests import Load
from penstock.engines.stacks import doing, stacks, stacks_directory
from penstock.epochs.state_directory import StateDirectory
from tests.unit.engines.programs import nothing, stateless
from tests.unit.epochs.application import program_of

SLOT = """
import re, sys, time
from pathlib import Path
from penstock.engines.stacks import tell_stacks

tell_stacks(Path(sys.argv[1]))
print("ready", flush=True)
{code}
"""
HANGS = {
    "in a call": "def slow(): time.sleep(60)\nslow()",
    "with the interpreter": "def slow(): re.match('(a+)+$', 'a' * 60 + 'b')\nslow()",
}


@contextmanager
def process(directory: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SLOT.format(code=code), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("how", HANGS)
def test_a_process_that_hangs_tells_where(tmp_path: Path, how: str) -> None:
    with process(tmp_path / "stacks", HANGS[how]) as hanging:
        for _ in range(2):  # and can be asked again
            time.sleep(0.1)
            found = stacks(tmp_path / "stacks")
            assert list(found) == [hanging.pid]
            assert " in slow\n" in found[hanging.pid]
            assert found[hanging.pid].count("(most recent call first)") == 1
        assert hanging.poll() is None


def test_a_file_that_is_left_is_removed_and_nobody_gets_a_signal(tmp_path: Path) -> None:
    directory = tmp_path / "stacks"
    directory.mkdir()
    (directory / str(os.getpid())).write_text("")  # we have no handler: a signal would end us
    with process(directory, HANGS["in a call"]) as gone:
        pass
    assert gone.returncode == -signal.SIGKILL
    assert stacks(directory) == {}
    assert list(directory.iterdir()) == []
    assert stacks(tmp_path / "nothing") == {}


def test_slots_tell_their_stacks_once_they_have_the_program(tmp_path: Path) -> None:
    program = replace(program_of(stateless()), directory=str(tmp_path))
    home = StateDirectory(program.directory, program.application_id)
    home.take_over("one")
    directory = stacks_directory(program.directory, program.application_id)
    slots = ForkedSlots(program, nothing, 1, lambda line: None)
    slots.start()
    try:
        slot = slots.slot(0)
        slot.ask(Load())
        found = stacks(directory)
        assert list(found) == [slot.process]
        assert "/engines/messages.py" in found[slot.process]
        assert doing(found[slot.process]) == []
        assert (directory.stat().st_mode & 0o777, (directory / str(slot.process)).stat().st_mode & 0o777) == (0o700, 0o600)
    finally:
        slots.close()


def test_user_code_is_what_penstock_has_called() -> None:
    ours = Path(penstock.__file__).parent
    threads = [
        ["/usr/lib/x/app.py", f"{ours}/lanes/lane.py", f"{ours}/engines/serving.py"],
        [os.__file__, f"{ours}/engines/messages.py"],
        ["<frozen importlib._bootstrap>", f"{ours}/kafka/clients.py"],
        ["/app/thread_of_users.py"],
    ]
    text = "\n".join(
        line
        for number, places in enumerate(threads)
        for line in [f"Thread {number} (most recent call first):", *(f'  File "{place}", line 3 in f' for place in places)]
    )
    assert doing(text) == ['File "/usr/lib/x/app.py", line 3 in f']
