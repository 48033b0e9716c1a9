"""Plans and their stages, as frozen values with a readable text form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """The nodes that run between two exchanges of an epoch.

    `sources` are the nodes whose records enter the stage, `nodes` all nodes those records can reach. A stage without stores
    needs no particular lane (`is_keyed` is false): it runs wherever its rows are. `shared` are stores of which it may use any
    key; a stage that `is_serial` runs over all lanes at once.
    """

    depth: int
    sources: tuple[str, ...]
    nodes: tuple[str, ...]
    topics: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    stores: tuple[str, ...]
    sinks: tuple[str, ...]
    shared: tuple[str, ...] = ()
    is_serial: bool = False

    @property
    def is_keyed(self) -> bool:
        """Whether records must be on the lane of their key."""
        return bool(self.stores)

    def __str__(self) -> str:
        where = "serially, over all lanes" if self.is_serial else "on lanes, by key" if self.is_keyed else "anywhere"
        lines = [f"stage {self.depth} ({where})"]
        for label, names in (
            ("topics", self.topics),
            ("from exchanges", self.reads),
            ("stores", self.stores),
            ("shared stores", self.shared),
            ("to exchanges", self.writes),
            ("to topics", self.sinks),
        ):
            if names:
                lines.append(f"  {label}: {', '.join(names)}")
        lines.append(f"  nodes: {len(self.nodes)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages of a topology, in order. `fingerprint` changes with everything that state depends on."""

    stages: tuple[Stage, ...]
    global_topics: tuple[str, ...]
    fingerprint: str

    @property
    def exchanges(self) -> int:
        """How many times an epoch's records change lanes, at most."""
        return max(0, len(self.stages) - 1)

    def __str__(self) -> str:
        head = [f"plan {self.fingerprint}: {len(self.stages)} stages, {self.exchanges} exchanges"]
        if self.global_topics:
            head.append(f"global tables from: {', '.join(self.global_topics)}")
        return "\n".join([*head, *map(str, self.stages)]) + "\n"
