"""What topologies print, held against files.

`*.describe.txt` is what Kafka Streams 4.3.1 prints for the same topology, so nothing here writes it. The rest is Penstock's
own: `PENSTOCK_REWRITE_GOLDEN=1` writes it anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.plan import plan
from tests.golden.topologies import TOPOLOGIES

HERE = Path(__file__).parent
FORMS = ("describe", "mermaid", "plan")


def golden(name: str, form: str, text: str) -> str:
    file = HERE / f"{name}.{form}.txt"
    if os.environ.get("PENSTOCK_REWRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_describes_itself_as_kafka_streams_does(name: str) -> None:
    assert TOPOLOGIES[name]().describe() == (HERE / f"{name}.describe.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_is_drawn_as_it_was(name: str) -> None:
    text = TOPOLOGIES[name]().mermaid()
    assert text == golden(name, "mermaid", text)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_is_planned_as_it_was(name: str) -> None:
    text = str(plan(TOPOLOGIES[name]()))
    assert text == golden(name, "plan", text)


def test_every_golden_file_has_its_topology() -> None:
    assert {file.name for file in HERE.glob("*.txt")} == {f"{name}.{form}.txt" for name in TOPOLOGIES for form in FORMS}
