"""The error that ends an application."""

from __future__ import annotations

from penstock.errors import FencedError, PenstockError
from penstock.runtime.failures import explained


def test_an_error_of_ours_is_unchanged() -> None:
    error = FencedError("taken over")
    assert explained(error) is error


def test_any_other_keeps_its_type_and_its_text() -> None:
    error = explained(ZeroDivisionError("by zero"))
    assert (type(error), str(error)) == (PenstockError, "Unexpected failure: ZeroDivisionError: by zero")


def test_a_long_report_is_shortened() -> None:
    assert len(str(explained(RuntimeError("x" * 10_000)))) < 5_000
