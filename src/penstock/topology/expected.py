"""A check of what users pass where a topology is expected."""

from __future__ import annotations

from penstock.errors import TopologyError
from penstock.errors.lines import user_line
from penstock.topology.graph import Topology


def checked_topology(given: object, who: str) -> Topology:
    """Return the topology; raise if it is something else, such as its builder or its application."""
    if isinstance(given, Topology):
        return given
    cure = "pass what build() of the StreamsBuilder returns, or the topology of the App"
    raise TopologyError(f"{who} takes a Topology, not a {type(given).__name__} ({user_line()}): {cure}.")
