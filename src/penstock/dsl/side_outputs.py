"""Side outputs in a draft: each is a stream below a node of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.dsl.annotations import BY_VALUE, value_made
from penstock.dsl.draft import DraftNode
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import exchanged
from penstock.errors import TopologyError
from penstock.operators.stateless import PassThrough
from penstock.serdes import Serde
from penstock.topology import Line, ProcessorNode, Topology


@dataclass(frozen=True, slots=True)
class Sender:
    """The node of a processor that may have side outputs."""

    place: Place

    def side_output(self, output: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> Place:
        """Return the place of a side output, given by name."""
        here = self.place
        name = f"{here.name}-{output}"
        if any(child.name == name for child in here.node.children):
            raise TopologyError(
                f"Side output {output!r} of {here.name} is declared twice ({line}): use the stream that the first call returned."
            )

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_side_node(ProcessorNode(name, parents, PassThrough(), (), line), output)

        node = here.draft.add(DraftNode(name, line, write), here.node)
        return here.moved(name, node, key=key, value=value)


@dataclass(frozen=True, slots=True)
class ExchangedSender(Sender):
    """A node whose results go through an exchange; each side output goes through one of its own."""

    results: str

    def side_output(self, output: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> Place:
        """See `Sender`."""
        aside = Sender.side_output(self, output, key, value, line)
        return exchanged(aside, f"{aside.name}-{self.results}", key, value, line)


def side_output(here: Place, sender: Sender | None, output: str, key: Any, value: Any, line: Line) -> Place:
    """Return the place of a side output of the processor that returned a stream."""
    if sender is None:
        raise TopologyError(
            f"{here.name} has no side output {output!r} ({line}): call side_output on the stream that process, process_values, "
            f"process_atomically or an asynchronous verb returned."
        )
    made = value_made(here.draft, value, None, f"side_output {output!r}", line, BY_VALUE)
    return sender.side_output(output, given_serde(key) or here.key, made, line)
