"""What an error must say so that one learns from it; what the tests of mistakes share."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def teaches(kind: type[Exception], cause: str, cure: str, *, line: bool = True) -> Iterator[None]:
    """The block makes a mistake. Its error has the cause, the cure, and a line of the calling file within the test."""
    caller = sys._getframe(2)
    with pytest.raises(kind) as found:
        yield
    told = str(found.value)
    assert cause in told, told
    assert cure in told, told
    if line:
        numbers = [int(number) for number in re.findall(rf"{re.escape(Path(caller.f_code.co_filename).name)}:(\d+)", told)]
        first, last = caller.f_code.co_firstlineno, caller.f_lineno
        assert any(first <= number <= last + 20 for number in numbers), told


def wrong(value: object) -> Any:
    """Hide a value's type from the type checker, which would find the mistake first."""
    return value
