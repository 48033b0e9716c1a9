"""Composes a lane's store of those of another number of lanes, shard by shard, so that it need not be rebuilt.

Changelog partitions belong to shards, and so do offsets in marks: each shard comes as of what was committed when its store was
written, with its part of that store's mark, and catches up from there. A shard that no store has is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from penstock.epochs.program import Program
from penstock.epochs.shards import lane_of, shards_of
from penstock.epochs.standing import (
    Committed,
    Standing,
    attempted,
    has_known_commits,
    offsets_left,
    place_of,
    refuse_lost_rows,
    standing,
)
from penstock.epochs.state_directory import StateDirectory, to_read
from penstock.state import EngineFactory, EngineKind, Head, LaneState, LaneView, Mark
from penstock.state.composition import LaneComposition
from penstock.state.copies import CopyDirectory, Manifest
from penstock.state.engines.lmdb import DATA_FILE


class Source(NamedTuple):
    """A store with some of the shards. `open` opens it for reading; what it needs on the way is beside the directory given.

    `mark` is its mark as far as it is known before that. A copy `is_past`: its epochs in flight may have run again since.
    """

    what: str
    mark: Mark
    is_past: bool
    open: Callable[[Path], AbstractContextManager[LaneState]]


class Plan(NamedTuple):
    """The nearest source of each shard that has one, and how many offsets of all shards are then left to read."""

    sources: Mapping[int, Source]
    left: int


def planned(program: Program, lane: int, committed: Committed, copies: CopyDirectory | None) -> Plan:
    """Choose the sources of a lane's shards among the stores for other numbers of lanes, here and in the copies."""
    own = shards_of(lane, program.shards, program.lanes)
    sources: dict[int, Source] = {}
    left = {shard: offsets_left(program, [shard], None, committed) for shard in own}
    found = [*_on_this_host(program, own, committed)]
    if copies is not None:
        found += attempted("The directory of copies", partial(_in_copies, program, own, committed, copies)) or []
    for source, shards in found:
        for shard in shards:
            offsets = offsets_left(program, [shard], source.mark, committed)
            if shard not in sources or offsets < left[shard]:
                sources[shard], left[shard] = source, offsets
    return Plan(sources, sum(left.values()))


def compose(program: Program, lane: int, committed: Committed, plan: Plan, directory: Path) -> None:
    """Write the store of a lane into an empty directory. The shards of a source that is damaged are left out."""
    own, parts = shards_of(lane, program.shards, program.lanes), list[tuple[int, Standing]]()
    with closing(EngineFactory(program.engine, str(directory)).open()) as engine:
        composed = LaneComposition(engine)
        for source in {id(source): source for source in plan.sources.values()}.values():
            with ExitStack() as opened:
                found = attempted(source.what, partial(_verified, program, committed, source, directory, opened))
                if found is None:
                    continue
                state, view, stands = found
                for shard in [shard for shard, chosen in plan.sources.items() if chosen is source]:
                    composed.add(state, view, shard)
                    parts.append((shard, stands))
        if parts:
            is_exact = len(parts) == len(own) and all(stands.is_exact for _, stands in parts)
            epoch = max(stands.target for _, stands in parts)
            composed.complete(epoch, _combined(parts, committed), committed.incarnation if is_exact else "")


def _on_this_host(program: Program, own: range, committed: Committed) -> Iterator[tuple[Source, Sequence[int]]]:
    """Yield the stores of this host that have some of the shards, with these shards."""
    home = StateDirectory(program.directory, program.application_id)
    for lanes in home.layouts:
        for lane, shards in _lanes_with(own, program, lanes):
            path = home.lane_directory(lane, lanes)
            head = attempted(f"The store {path}", partial(_head_of, program, path)) if path.exists() else None
            if head is None:
                continue
            refuse_lost_rows(head, committed)
            stands = _standing(program, head, committed, is_past=False)
            if stands is not None:
                yield Source(f"The store {path}", stands.mark, False, partial(_opened, program, path)), shards


def _in_copies(program: Program, own: range, committed: Committed, copies: CopyDirectory) -> list[tuple[Source, Sequence[int]]]:
    """Return the copies that have some of the shards, with these shards."""
    found: list[tuple[Source, Sequence[int]]] = []
    for layout in copies.layouts():
        if layout.shards != program.shards or program.engine is not EngineKind.LMDB:
            continue
        for lane, shards in _lanes_with(own, program, layout.lanes):
            for manifest in copies.newest(layout, lane)[:1]:
                stands = _standing(program, Head(manifest.epoch, mark=manifest.mark), committed, is_past=True)
                if stands is not None:
                    what = f"The copy of lane {lane} of {layout.lanes} as of epoch {manifest.epoch}"
                    found.append((Source(what, stands.mark, True, partial(_fetched, program, copies, manifest)), shards))
    return found


def _lanes_with(own: range, program: Program, lanes: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the lanes of another layout that have some of the shards, with these shards."""
    if not 0 < lanes <= program.shards or lanes == program.lanes:
        return
    by_lane: dict[int, list[int]] = {}
    for shard in own:
        by_lane.setdefault(lane_of(shard, program.shards, lanes), []).append(shard)
    yield from by_lane.items()


def _head_of(program: Program, path: Path) -> Head:
    with to_read(program.engine, path) as state:
        return state.head


def _standing(program: Program, head: Head, committed: Committed, is_past: bool) -> Standing | None:
    """Return what a store of another layout is good for. On several hosts, ids of writes are known of the current layout only."""
    is_known = not program.is_spread and not is_past and has_known_commits(program, 0, head, committed)
    return standing(head, committed, is_known)


@contextmanager
def _opened(program: Program, path: Path, directory: Path) -> Iterator[LaneState]:
    with to_read(program.engine, path) as state:
        yield state


@contextmanager
def _fetched(program: Program, copies: CopyDirectory, manifest: Manifest, directory: Path) -> Iterator[LaneState]:
    with TemporaryDirectory(prefix=directory.name, dir=directory.parent) as fetched:
        copies.fetch(manifest, Path(fetched) / DATA_FILE)
        with to_read(program.engine, Path(fetched)) as state:
            yield state


def _verified(
    program: Program, committed: Committed, source: Source, directory: Path, opened: ExitStack
) -> tuple[LaneState, LaneView, Standing] | None:
    """Open a source and read all of it, before any of its shards is used; None if it is not what it was taken for."""
    state = opened.enter_context(source.open(directory))
    stands = _standing(program, state.head, committed, source.is_past)
    if stands is None:
        return None
    state.verify()
    return state, state.read_committed(stands.target), stands


def _combined(parts: Sequence[tuple[int, Standing]], committed: Committed) -> Mark:
    """Return the mark of a lane whose shards have marks of different stores: as old as the oldest of them."""
    offsets = {
        place: offset for shard, stands in parts for place, offset in stands.mark.offsets.items() if place_of(place)[1] == shard
    }
    epoch, time_ms = min(stands.mark.epoch for _, stands in parts), min(stands.mark.time_ms for _, stands in parts)
    return Mark(epoch, time_ms, offsets, dict(committed.topic_ids))
