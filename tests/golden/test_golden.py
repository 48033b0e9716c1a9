"""What topologies print, compared with files; `PENSTOCK_REWRITE_GOLDEN=1` rewrites the files.

`*.kafka.txt` is what Kafka Streams 4.3.1 prints for the same topology, and is never rewritten here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Topology
from penstock.topology.plan import plan
from tests.golden.topologies import TOPOLOGIES
from verification.conformance.compare import settled

HERE = Path(__file__).parent
FORMS: dict[str, Callable[[Topology], str]] = {
    "describe": Topology.describe,
    "mermaid": Topology.mermaid,
    "plan": lambda topology: str(plan(topology)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_text_of_a_topology_does_not_change(name: str, form: str) -> None:
    text = FORMS[form](TOPOLOGIES[name]())
    file = HERE / f"{name}.{form}.txt"
    if os.environ.get("PENSTOCK_REWRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_describes_itself_as_kafka_streams_does(name: str) -> None:
    """Except for the order of names within a list, which in Kafka Streams depends on hash codes."""
    theirs = (HERE / f"{name}.kafka.txt").read_text(encoding="utf-8")
    assert settled(TOPOLOGIES[name]().describe()) == settled(theirs)


def test_every_golden_file_has_its_topology() -> None:
    assert {file.name for file in HERE.glob("*.txt")} == {
        f"{name}.{form}.txt" for name in TOPOLOGIES for form in (*FORMS, "kafka")
    }
