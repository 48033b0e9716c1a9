"""What a command of a page does, as far as one must know to run it: whether it ends, what it needs, how far it leads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from itertools import dropwhile

from verification.first_day.pages import Command, PageError

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_FOUND_NOTHING = re.compile(r"^0 rows\b|\"no_key\"", re.MULTILINE)


def words(text: str) -> list[str]:
    """Return the words of a command, without the variables that are set for it."""
    return list(dropwhile(_ASSIGNMENT.match, shlex.split(text)))


def installs(text: str) -> bool:
    """Whether it installs packages."""
    return words(text)[:2] == ["pip", "install"]


def tries(text: str) -> bool:
    """Whether it runs a topology without a broker."""
    return words(text)[:2] == ["penstock", "try"]


def serves(text: str) -> bool:
    """Whether it runs an application, which serves until it is stopped."""
    found = words(text)
    return found[:2] in (["penstock", "dev"], ["penstock", "run"], ["python", "app.py"]) and "--until" not in found


def watches(text: str) -> bool:
    """Whether it shows an application until it is stopped."""
    found = words(text)
    return found[:2] == ["penstock", "top"] and "--once" not in found


def kafka_home(text: str) -> str | None:
    """Return the directory of an unpacked Kafka that it names."""
    found = re.match(r"KAFKA_HOME=(\S+) ", text)
    return found[1] if found else None


def found_nothing(output: str) -> bool:
    """Whether a query has found no row, which is no error for `penstock query` and `curl`."""
    return _FOUND_NOTHING.search(output) is not None


def to_first_output(commands: Sequence[Command]) -> slice:
    """Return which commands lead from the installation to the first output, both included: what a reader types at a prompt."""
    first = _position(commands, installs, "pip install …")
    return slice(first, _position(commands, tries, "penstock try …", first) + 1)


def to_exactly_once(commands: Sequence[Command]) -> slice:
    """Return which commands lead from the first output to an application on a broker, without the former."""
    after = to_first_output(commands).stop
    return slice(after, _position(commands, serves, "penstock dev …", after) + 1)


def _position(commands: Sequence[Command], is_wanted: Callable[[str], bool], example: str, start: int = 0) -> int:
    for number in range(start, len(commands)):
        if is_wanted(commands[number].text):
            return number
    raise PageError(f"the page has no command {example!r} where a reader needs it")
