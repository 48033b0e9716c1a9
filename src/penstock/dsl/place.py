"""A position in the draft: the node that the next verb goes below, with the serdes known there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.dsl.draft import Draft, DraftNode
from penstock.errors import TopologyError
from penstock.processor import Operator
from penstock.serdes import Serde, serde_of
from penstock.state import StoreSpec
from penstock.topology import Line, ProcessorNode, Topology, user_line


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the draft. `name` is the name of the last node there."""

    draft: Draft
    node: DraftNode
    name: str
    key: Serde[Any] | None
    value: Serde[Any] | None
    sources: frozenset[str]
    rekeyed: bool = False
    """Whether the key has changed since records were last partitioned by it."""

    def below(
        self,
        name: str,
        operator: Operator,
        line: Line,
        *,
        rekeyed: bool | None = None,
        stores: Sequence[str] = (),
        own_store: StoreSpec | None = None,
        **serdes: Any,
    ) -> Place:
        """Put a processor node below, with existing stores and one of its own; return its place."""

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(ProcessorNode(name, parents, operator, (), line))
            topology.connect_processor_and_state_stores(name, *stores)
            if own_store is not None:
                topology.add_state_store(own_store, name)

        return self.moved(name, self.draft.add(DraftNode(name, line, write), self.node), rekeyed=rekeyed, **serdes)

    def with_serdes(self, key: Any, value: Any) -> Place:
        """Return the same place with the serdes of the arguments `key=` and `value=`."""
        return replace(self, key=given_serde(key) or self.key, value=given_serde(value) or self.value)

    def check_same_builder(self, other: Place, line: Line) -> None:
        """Reject a place of another builder: one topology cannot contain both."""
        if other.draft is not self.draft:
            raise TopologyError(
                f"{other.name} belongs to another StreamsBuilder than {self.name} ({line}): create both with the same one."
            )

    def moved(self, name: str, node: DraftNode, *, rekeyed: bool | None = None, **serdes: Any) -> Place:
        """Return the same place further down."""
        return replace(self, node=node, name=name, rekeyed=self.rekeyed if rekeyed is None else rekeyed, **serdes)


def given_serde(given: Any) -> Serde[Any] | None:
    """Return the serde of an argument `key=` or `value=`, None if there is none."""
    try:
        return None if given is None else serde_of(given)
    except TypeError as error:
        raise TypeError(f"{error} ({user_line()})") from error
