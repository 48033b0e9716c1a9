"""The error that ends an application."""

from __future__ import annotations

import errno
from pathlib import Path

from penstock.errors import FencedError, PenstockError, StateError
from penstock.runtime.life import explained

STATE = Path("state")


def test_an_error_of_ours_is_unchanged() -> None:
    error = FencedError("taken over")
    assert explained(error, STATE) is error


def test_any_other_keeps_its_type_and_its_text() -> None:
    error = explained(ZeroDivisionError("by zero"), STATE)
    assert (type(error), str(error)) == (PenstockError, "Unexpected failure: ZeroDivisionError: by zero")


def test_that_of_a_full_disk_has_the_path_and_the_cure() -> None:
    error = explained(OSError(errno.ENOSPC, "No space left on device"), STATE)
    assert type(error) is StateError
    assert f"Cannot write to {STATE.absolute()} on " in str(error)
    assert "Free some space" in str(error)


def test_a_long_report_is_shortened() -> None:
    assert len(str(explained(RuntimeError("x" * 10_000), STATE))) < 5_000


class _MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_one_that_cannot_say_what_it_is_still_ends_the_application_with_its_type() -> None:
    assert str(explained(_MuteError(), STATE)) == "Unexpected failure: _MuteError: (its __str__ raises ValueError)"
