"""What a case of epochs is: a case of the generator, with partitions, cuts and starts among its steps."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.spec import Case, Pipe, Step


@dataclass(frozen=True)
class Input(Pipe):
    """One input record of a partition. `blanks` spells its JSON key in another way; its value is written `times` times over."""

    partition: int = 0
    blanks: int = 0
    times: int = 1


@dataclass(frozen=True)
class Cut(Step):
    """The records so far are an epoch.

    `again`: it was run before and not committed, with the `same` records, or with `more`: the rest of them is then the next
    epoch. `mark`: the lanes save a mark in the next epoch. `compact`: the changelogs are compacted. `copy`: somebody makes a copy
    of the state directory.
    """

    again: str = ""
    mark: bool = False
    compact: bool = False
    copy: bool = False


@dataclass(frozen=True)
class Restart(Step):
    """Another start, with so many lanes.

    What it finds on disk: the stores as they were (`kept`), nothing (`deleted`), the last copy (`older`), stores of the same
    application before a reset, or in another cluster (`foreign`), or stores that are `ahead`: the records since the last cut
    were an epoch that did not come to its commit. `tidy`: stores of other numbers of lanes are removed afterwards, as a start
    does that comes to its end.
    """

    lanes: int
    stores: str = "kept"
    tidy: bool = True


@dataclass(frozen=True)
class EpochCase(Case):
    """A case for the epoch host: with how many shards, with how many lanes it starts."""

    shards: int = 1
    lanes: int = 1
