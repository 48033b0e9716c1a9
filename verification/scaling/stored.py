"""How much room rows take in a lane's file, beside their keys and values."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from penstock.serdes import Bytes
from penstock.state import EngineFactory, EngineKind, LaneState, StoreKind, StoreSpec

KEY_BYTES = 16
VALUE_BYTES = (100, 400)
EPOCH = 20_000


def measure(rows: int) -> dict[str, float]:
    """Return the bytes of a row beside key and value, and the share of the file that is in use.

    Two sizes of values give both: a file has `rows * (key + value + row_bytes) / store_fill` bytes.
    """
    small, large = (_bytes_of_row(rows, size) for size in VALUE_BYTES)
    fill = (VALUE_BYTES[1] - VALUE_BYTES[0]) / (large - small)
    return {"row_bytes": fill * small - KEY_BYTES - VALUE_BYTES[0], "store_fill": fill}


def _bytes_of_row(rows: int, value_bytes: int) -> float:
    """Write rows in random order, as an application does, a few thousand in each epoch."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="scaling-") as directory:
        lane = LaneState(EngineFactory(EngineKind.LMDB, str(Path(directory) / "lane")).open())
        store = lane.shard(0).store(StoreSpec("rows", StoreKind.TIMESTAMPED, key=Bytes(), value=Bytes()))
        for epoch, first in enumerate(range(0, rows, EPOCH)):
            for number in range(first, min(first + EPOCH, rows)):
                store.put(chance.randbytes(KEY_BYTES), chance.randbytes(value_bytes), number)
            lane.commit(epoch)
        lane.close()
        used = sum(file.stat().st_blocks for file in Path(directory).rglob("*") if file.is_file())
    return 512 * used / rows
