"""The callers of a program in this process: kept from epoch to epoch, closed with the program or the process."""

from __future__ import annotations

import weakref

from penstock.calls import Callers
from penstock.epochs.program import Program

_callers: dict[int, Callers] = {}


def callers_of(program: Program) -> Callers:
    """Return the callers of a program; a worker unpickles it only once, so that every epoch has the same object."""
    found = _callers.get(id(program))
    if found is None:
        found = _callers[id(program)] = Callers()
        weakref.finalize(program, _close, id(program))
    return found


def close_callers(program: Program) -> None:
    """Close the callers of a program in this process; the next epoch opens them again."""
    if id(program) in _callers:
        _callers[id(program)].close()


def _close(number: int) -> None:
    _callers.pop(number).close()
