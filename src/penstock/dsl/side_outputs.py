"""Side outputs in a draft: streams of what a processor sends aside, each below a node of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.dsl.draft import DraftNode
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import exchanged
from penstock.errors import TopologyError
from penstock.operators.stateless import PassThrough
from penstock.serdes import Serde
from penstock.topology import Line, ProcessorNode, Topology


@dataclass(frozen=True, slots=True)
class Sender:
    """The node of a processor, which may send records aside."""

    place: Place

    def side_output(self, output: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> Place:
        """Where the records are that the processor sends aside under a name."""
        here = self.place
        name = f"{here.name}-{output}"
        if any(child.name == name for child in here.node.children):
            raise TopologyError(f"side output {output!r} of {here.name} is declared twice ({line}); use what the first gave")

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_side_node(ProcessorNode(name, parents, PassThrough(), (), line), output)

        node = here.draft.add(DraftNode(name, line, write), here.node)
        return here.moved(name, node, key=key, value=value)


@dataclass(frozen=True, slots=True)
class ExchangedSender(Sender):
    """A node whose results come through an exchange: so does what it sends aside, through one of its own."""

    results: str

    def side_output(self, output: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> Place:
        """See `Sender`."""
        aside = Sender.side_output(self, output, key, value, line)
        return exchanged(aside, f"{aside.name}-{self.results}", key, value, line)


def side_output(here: Place, sender: Sender | None, output: str, key: Any, value: Any, line: Line) -> Place:
    """Return where the records are that the processor above a stream sends aside under a name."""
    if sender is None:
        raise TopologyError(
            f"side_output({output!r}) works on the stream that process, process_values, process_atomically or an asynchronous "
            f"verb returned; {here.name} sends nothing aside ({line})"
        )
    return sender.side_output(output, given_serde(key) or here.key, given_serde(value), line)
