"""The programs of `make types` use every verb."""

from __future__ import annotations

import pytest

from penstock import (
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    StreamsBuilder,
    WindowedCogroupedKStream,
    WindowedKStream,
)
from tests.types.__main__ import PROGRAMS
from tests.types.verdicts import CHECKERS, expected_errors

INSIDE = {"group", "queryable_store_name"}
"""Not verbs: attributes of a handle for other rooms and for queries."""

HANDLES = [
    StreamsBuilder,
    KStream,
    KTable,
    KGroupedStream,
    KGroupedTable,
    WindowedKStream,
    CogroupedKStream,
    WindowedCogroupedKStream,
]


@pytest.mark.parametrize("handle", HANDLES)
def test_every_verb_is_used_correctly(handle: type) -> None:
    right = "\n".join(
        line for path in PROGRAMS.glob("*.py") for line in path.read_text(encoding="utf-8").splitlines() if "# error" not in line
    )
    verbs = {name for kind in handle.__mro__[:-1] for name in vars(kind) if not name.startswith("_")} - INSIDE
    assert verbs
    assert {verb for verb in verbs if f".{verb}(" not in right} == set()


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_uses_are_marked(checker: str) -> None:
    assert len(expected_errors({path.name: path.read_text(encoding="utf-8") for path in PROGRAMS.glob("*.py")}, checker)) > 100
