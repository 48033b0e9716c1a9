"""Composes a lane from shards of other lanes: what belongs to a shard begins with its number in every space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.advance import advanced
from penstock.state.engines.engine import SpaceBatch
from penstock.state.epochs import HEAD, META, Head, Mark, digest, encode_head
from penstock.state.lane import LaneState, LaneView, chunks

if TYPE_CHECKING:
    from penstock.state.engines.engine import Engine

_MASK = 2**64 - 1


class LaneComposition:
    """A new lane in an empty engine. It counts as a lane only when its head is written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._digests: dict[str, int] = {}

    def add(self, lane: LaneState, view: LaneView, shard: int) -> None:
        """Add a shard of another lane, as `view` shows it."""
        for name in lane.head.digests:
            space = view.shard(shard).space(name)
            entries = ((space.prefix + key, value) for key, value in space.scan())
            for chunk in chunks(entries):
                keys, values = zip(*chunk, strict=True)
                self._engine.write([SpaceBatch(name, list(keys), list(values))])
                advanced(f"composing shard {shard} of {name!r}")
                self._digests[name] = self._digests.get(name, 0) + digest(keys, values) & _MASK

    def complete(self, epoch: int, mark: Mark, incarnation: str) -> None:
        """Write the head, with the digests of what was added."""
        head = Head(epoch, self._digests, mark=mark, incarnation=incarnation)
        self._engine.write([SpaceBatch(META, [HEAD], [encode_head(head)])])
