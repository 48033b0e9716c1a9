"""A case of epochs: a case of the generator, with partitions, cuts and starts among its steps."""

from __future__ import annotations

from dataclasses import dataclass

from verification.conformance.spec import Case, Pipe, Step


@dataclass(frozen=True)
class Input(Pipe):
    """One input record of a partition. `blanks` chooses the encoding of its JSON key; its value is repeated `times` times."""

    partition: int = 0
    blanks: int = 0
    times: int = 1


@dataclass(frozen=True)
class Cut(Step):
    """The end of an epoch of the records so far.

    `again`: it ran before and was not committed, with the `same` records, or with `more`: the rest of them is then the next
    epoch. `mark`: the lanes save a mark in the next epoch. `compact`: the changelogs are compacted. `copy`: the state
    directory is copied. `fails`: the next commit fails, all lanes are rolled back, and all epochs in flight run again.
    `moves`: the next epochs run in another process.
    """

    again: str = ""
    mark: bool = False
    compact: bool = False
    copy: bool = False
    fails: bool = False
    moves: bool = False


@dataclass(frozen=True)
class Restart(Step):
    """A start, with this many lanes.

    What it finds on disk: the unchanged stores (`kept`), nothing (`deleted`), the last copy (`older`), stores of the same
    application before a reset, or in another cluster (`foreign`), or stores that are `ahead`: the records since the last cut
    were an epoch that was not committed. Unless it is `kept`, epochs in flight were not committed either, and run again. `tidy`:
    stores of other numbers of lanes are removed afterwards, as by a complete start.
    """

    lanes: int
    stores: str = "kept"
    tidy: bool = True


@dataclass(frozen=True)
class EpochCase(Case):
    """A case for the epoch host: its number of shards, of lanes at first, and of epochs in flight while the next one runs.

    With `columns`, expressions are computed in columns where they can be, however few records there are. `failures` is what the
    application does about a function that fails: it ends (`fail`), drops the record, or retries the function first. With
    several `threads`, shards are walked by them at the same time, as if all functions waited for other systems.
    """

    shards: int = 1
    lanes: int = 1
    in_flight: int = 0
    columns: bool = False
    failures: str = "fail"
    threads: int = 1
