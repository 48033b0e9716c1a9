"""Brings a lane the nearest store that can be found elsewhere, if that is nearer to what was committed than its own.

It comes from the host that has had the lane, from a directory of copies, or is composed of stores for another number of lanes.
It is written beside the lane's directory, and takes its place only when it is complete, rolled back and checked.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from penstock import faults
from penstock.epochs.layouts import compose, planned
from penstock.epochs.program import Program
from penstock.epochs.shards import shards_of
from penstock.epochs.standing import Committed, Found, attempted, has_known_commits, is_usable, offsets_left, standing
from penstock.epochs.state_directory import StateDirectory, to_read
from penstock.errors import TopicError
from penstock.state import EngineFactory, EngineKind, Head, LaneState
from penstock.state.copies import CopyDirectory, Layout, Manifest
from penstock.state.engines.lmdb import DATA_FILE
from penstock.state.files import created, refuse_if_too_large
from penstock.state.remote.client import Address, LaneClient, RemoteEngine

_log = logging.getLogger(__name__)

FEW_OFFSETS = 100_000
"""A lane's own store that has no more to read than this catches up in a second: nothing is copied then."""

_PATIENCE_S = 60.0
"""How long the host that has had a lane may take to answer, and to go on with a copy. To copy a large lane may take hours."""


class Offer(NamedTuple):
    """A store elsewhere: how many offsets it leaves to read, and how to write it into an empty directory."""

    what: str
    found: Found
    left: int
    write: Callable[[Path], None]


def bring_nearer(program: Program, lane: int, committed: Committed, peer: Address | None) -> Found | None:
    """Replace a lane's store, which is usable or missing, by the nearest one; return where that was found, None if nowhere."""
    directory = StateDirectory(program.directory, program.application_id).lane_directory(lane, program.lanes)
    own = _left_after(program, lane, committed, directory) if directory.exists() else None
    if committed.epoch < 0 or (own is not None and own <= FEW_OFFSETS):
        return None
    left = offsets_left(program, shards_of(lane, program.shards, program.lanes), None, committed) if own is None else own
    with ExitStack() as opened:
        offers = [*_offers(program, lane, committed, peer, opened)]
        for offer in sorted(offers, key=lambda offer: offer.left):
            if offer.left >= left:
                break
            with _beside(directory) as fresh:
                if _is_nearer(program, lane, committed, offer, fresh, left):
                    shutil.rmtree(directory, ignore_errors=True)
                    fresh.rename(directory)
                    return offer.found
    return None


def _is_nearer(program: Program, lane: int, committed: Committed, offer: Offer, fresh: Path, left: int) -> bool:
    """Write what is offered into an empty directory; return whether it is usable, and leaves less to read than `left`."""
    if not attempted(offer.what, partial(_is_written, offer, fresh)):
        return False
    faults.point("restore.copied")
    try:
        if not is_usable(program, lane, committed, fresh, is_copy=True):
            return False
    except TopicError as error:  # a lane's own store would prove that records are lost; what comes from elsewhere does not
        _log.warning("%s cannot be used: %s", offer.what, error)
        return False
    now = _left_after(program, lane, committed, fresh)
    return now is not None and now < left


def _left_after(program: Program, lane: int, committed: Committed, directory: Path) -> int | None:
    """Return how many offsets the store of a directory leaves to read; None if it cannot be used."""
    with to_read(program.engine, directory) as state:
        return _left(program, lane, state.head, committed)


def _is_written(offer: Offer, directory: Path) -> bool:
    offer.write(directory)
    return True


@contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """Provide an empty directory beside another one for the block; removes those of tasks that were killed."""
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    prefix = f"{directory.name}.copy-"
    for abandoned in directory.parent.glob(f"{prefix}*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    fresh = Path(mkdtemp(prefix=prefix, dir=directory.parent))  # a new name each time: a late task may be writing another one
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _offers(program: Program, lane: int, committed: Committed, peer: Address | None, opened: ExitStack) -> Iterator[Offer]:
    """Yield what other places have, as far as they can be asked."""
    is_lmdb = program.engine is EngineKind.LMDB
    if peer is not None and is_lmdb:
        what = "The lane server at {}:{}".format(*peer)
        yield from attempted(what, partial(_of_peer, program, lane, committed, what, peer, opened)) or ()
    copies = None
    if program.copies and is_lmdb:
        what = f"The directory of copies {program.copies}"
        copies = attempted(what, partial(CopyDirectory, program.copies, program.application_id))
        if copies is not None:
            yield from attempted(what, partial(_of_directory, program, lane, committed, copies)) or ()
    plan = attempted("Another number of lanes", partial(planned, program, lane, committed, copies))
    if plan is not None and plan.sources:
        write = partial(compose, program, lane, committed, plan)
        yield Offer("A composed store", Found.COMPOSED, plan.left, write)


def _of_peer(program: Program, lane: int, committed: Committed, what: str, peer: Address, opened: ExitStack) -> list[Offer]:
    """Return what the host offers that has had the lane."""
    client = opened.enter_context(closing(LaneClient(peer, program.server_key, _PATIENCE_S)))
    engine = RemoteEngine(client, lane)
    head = LaneState(engine).head
    left = _left(program, lane, head, committed)
    return [] if left is None else [Offer(what, Found.COPIED, left, partial(_receive, engine))]


def _of_directory(program: Program, lane: int, committed: Committed, copies: CopyDirectory) -> list[Offer]:
    """Return the copies of a lane in a directory; their epochs in flight are unknown before they are fetched."""
    offers = []
    for manifest in copies.newest(Layout(program.shards, program.lanes), lane):
        left = _left(program, lane, Head(manifest.epoch, mark=manifest.mark), committed)
        if left is not None:
            what = f"The copy of lane {lane} as of epoch {manifest.epoch} in {program.copies}"
            offers.append(Offer(what, Found.COPIED, left, partial(_fetch, program, copies, manifest)))
    return offers


def _left(program: Program, lane: int, head: Head, committed: Committed) -> int | None:
    """Return how many offsets a store leaves to read; None if it cannot be used."""
    stands = standing(head, committed, has_known_commits(program, lane, head, committed))
    own = shards_of(lane, program.shards, program.lanes)
    return None if stands is None else offsets_left(program, own, stands.mark, committed)


def _receive(engine: RemoteEngine, directory: Path) -> None:
    size, parts = engine.copied()
    refuse_if_too_large(size, directory)
    with created(directory / DATA_FILE) as file:
        for part in parts:
            file.write(part)


def _fetch(program: Program, copies: CopyDirectory, manifest: Manifest, directory: Path) -> None:
    """Fetch a copy. Its epochs in flight may have run again since, with other results, so they are taken back at once."""
    copies.fetch(manifest, directory / DATA_FILE)
    with closing(LaneState(EngineFactory(program.engine, str(directory)).open())) as state:
        if state.epoch > state.earliest:
            state.roll_back(state.earliest + 1)
