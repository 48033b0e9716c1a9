"""What is written to a pipe is passed on line by line, whatever its content and whatever fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from penstock.engines.output import LONGEST_LINE, LineReader

PATIENCE_S = 20


class Heard:
    def __init__(self, lines: int) -> None:
        self.lines: list[str] = []
        self._left = threading.Semaphore(0)
        self._expected = lines

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._left.release()
        if line == "bad":
            raise ValueError(line)

    def wait(self) -> list[str]:
        for _ in range(self._expected):
            assert self._left.acquire(timeout=PATIENCE_S)
        return self.lines


def test_lines_of_another_process_are_passed_on_in_order() -> None:
    heard = Heard(3)
    with LineReader(heard) as writing:
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('a\\n\\nb')"], stderr=writing, check=True)
    assert heard.wait() == ["a", "", "b"]


def test_invalid_text_and_very_long_lines_are_passed_on_too() -> None:
    heard = Heard(2)
    reader = LineReader(heard)
    with reader as writing:
        os.write(writing, b"\xff\r\n" + b"x" * (LONGEST_LINE // 2))
        os.write(writing, b"x" * (LONGEST_LINE // 2))
        first, *_ = heard.wait()  # although the line has not ended
        os.write(writing, b"y\n")
    reader.stop()
    assert first == "\\xff\r"
    assert "".join(heard.lines[1:]) == "x" * LONGEST_LINE + "y"


def test_pending_lines_are_passed_on_at_the_end() -> None:
    heard = Heard(0)

    def slow(line: str) -> None:
        time.sleep(0.05)
        heard(line)

    reader = LineReader(slow)
    with reader as writing:
        os.write(writing, b"a\nb\nc\n")
        reader.stop()
        assert heard.lines == ["a", "b", "c"]


def test_after_a_failed_line_the_next_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard(2)
    with LineReader(heard) as writing:
        os.write(writing, b"bad\ngood\n")
    assert heard.wait() == ["bad", "good"]
    assert "cannot pass on a line" in caplog.text


def test_after_the_end_nothing_is_passed_on_and_writers_are_not_blocked() -> None:
    heard = Heard(1)
    reader = LineReader(heard)
    with reader as writing:
        os.write(writing, b"before\n")
        heard.wait()
        reader.stop()
        for _ in range(100):  # more than a pipe holds
            os.write(writing, b"x" * 10_000 + b"\n")
    assert heard.lines == ["before"]
