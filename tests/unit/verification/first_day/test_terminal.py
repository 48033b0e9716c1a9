"""A terminal runs what is typed, keeps directory and variables, interrupts, and leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from verification.first_day.terminal import COLUMNS, Terminal, plain
from verification.harness.processes import HarnessError, wait_until

pytestmark = pytest.mark.slow  # a shell starts for each

ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path, ENVIRONMENT)
    yield opened
    opened.close()


def test_output_and_exit_code_of_a_command(terminal: Terminal) -> None:
    done = terminal.run("echo '┃ key ┃'; printf 'no end of line' >&2; (exit 3)", 10)
    assert (done.output, done.code) == ("┃ key ┃\nno end of line", 3)
    assert terminal.run("true", 10).output == ""


def test_directory_and_variables_carry_over(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal.run("mkdir shop && cd shop && export GREETING='a=b\nc'", 10).code == 0
    assert terminal.directory() == tmp_path / "shop"
    assert terminal.variables(tmp_path / "variables")["GREETING"] == "a=b\nc"
    assert terminal.run("echo hello!", 10).output == "hello!\n"


def test_it_is_a_terminal_of_a_known_width(terminal: Terminal) -> None:
    assert terminal.run("test -t 1 && stty size", 10).output == f"50 {COLUMNS}\n"


def test_a_command_that_runs_on_is_interrupted_as_by_a_key(terminal: Terminal) -> None:
    terminal.begin("(trap 'echo stopped; exit 7' INT; echo up; while true; do sleep 0.05; done)")
    wait_until("it runs", lambda: "up" in terminal.output, 10)
    assert terminal.wait(0.1) is None
    done = terminal.interrupt()
    assert done.code == 7
    assert "stopped" in done.output


def test_a_command_that_takes_too_long_has_no_exit_code(terminal: Terminal) -> None:
    done = terminal.run("echo begun; sleep 60", 0.5)
    assert done.code is None
    assert "begun" in done.output
    assert terminal.run("echo still here", 10).output == "still here\n"


def test_much_output_does_not_block(terminal: Terminal) -> None:
    done = terminal.run("seq 1 20000", 20)
    assert done.output.splitlines()[-1] == "20000"


def test_closing_it_ends_what_runs_in_it(tmp_path: Path) -> None:
    opened = Terminal(tmp_path, ENVIRONMENT)
    opened.begin("bash -c 'setsid sleep 300 & wait'")

    def sleeping() -> list[psutil.Process]:
        return [process for process in psutil.Process().children(recursive=True) if process.name() == "sleep"]

    wait_until("it runs", lambda: bool(sleeping()), 10)
    begun = sleeping()
    opened.close()
    assert not any(process.is_running() for process in begun)


def test_a_shell_that_ends_is_an_error(tmp_path: Path) -> None:
    opened = Terminal(tmp_path, ENVIRONMENT)
    with pytest.raises(HarnessError, match="the shell has ended"):
        opened.run("echo bye; exit", 10)
    opened.close()


def test_colours_and_movements_are_no_text() -> None:
    assert plain("\x1b[1mbold\x1b[0m\r\n\x1b[?1049h\x1b[2Jx\x1b(B") == "bold\nx"
