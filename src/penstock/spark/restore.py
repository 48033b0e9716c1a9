"""Restore as a Spark job: one task per lane, each of which restores its store to the committed epoch."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from structlog.contextvars import bound_contextvars

from penstock.epochs.home import server_of
from penstock.epochs.restore import ReadChangelog, Restored, restore_lane
from penstock.epochs.standing import Committed
from penstock.lane_servers.client import Address
from penstock.spark.session import LOOPBACK
from penstock.spark.tasks import program_of

OnProgress = Callable[[Mapping[int, int]], None]
"""Called with the number of offsets that each lane has left to read."""


_SCHEMA = pa.schema(
    [("lane", pa.int32()), ("found", pa.string()), ("rows", pa.int64()), ("write_id", pa.string()), ("port", pa.int32())]
)


def restore(
    lanes: DataFrame,
    broadcast: Any,
    committed: Committed,
    read: ReadChangelog,
    on_progress: OnProgress,
    driver: str = LOOPBACK,
    hosts: Sequence[str] = (),
    peers: Mapping[int, Address] | None = None,
) -> list[Restored]:
    """Restore the lanes whose numbers are in the first column of `lanes`; `read` is called in the tasks.

    It uses `mapInArrow` as epochs do, so that the first epoch reuses the same Python workers. `driver` is the address of this
    process for its tasks, and `hosts` are those of the lanes, if each has a lane server. `peers` are the servers of hosts that
    have had lanes before.
    """
    known_peers = dict(peers or {})
    with _Progress(on_progress, driver) as address:

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            program = program_of(broadcast)
            context = TaskContext.get()
            is_retry = context is not None and context.attemptNumber() > 0
            for lane in [lane for batch in batches for lane in batch.column(0).to_pylist()]:
                with bound_contextvars(lane=lane), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:

                    def report(left: int, lane: int = lane, sender: socket.socket = sender) -> None:
                        sender.sendto(json.dumps([lane, left]).encode(), address)

                    restored = restore_lane(program, lane, committed, read, report, is_retry, known_peers.get(lane))
                    if hosts:
                        restored = restored._replace(port=server_of(program, hosts[lane]))
                yield pa.RecordBatch.from_pylist([restored._asdict()], _SCHEMA)

        found = lanes.mapInArrow(task, from_arrow_schema(_SCHEMA)).toArrow()
    return [Restored(**lane) for lane in found.to_pylist()]


class _Progress:
    """Receives the progress of tasks, as datagrams: losing one does no harm."""

    def __init__(self, on_progress: OnProgress, host: str) -> None:
        self._on_progress = on_progress
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._socket.settimeout(0.5)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="penstock-restore-progress", daemon=True)

    def __enter__(self) -> tuple[str, int]:
        self._thread.start()
        address: tuple[str, int] = self._socket.getsockname()
        return address

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        left: dict[int, int] = {}
        while not self._done.is_set():
            try:
                lane, offsets = json.loads(self._socket.recv(1_000))
                left[int(lane)] = int(offsets)
            except (TimeoutError, ValueError, TypeError):
                continue
            self._on_progress(left)
