"""`FirstWrites`: the partitions that a producer writes to for the first time, whose first row has to go alone.

The leader of a partition refuses gaps in the numbers of what a producer sends. But of a producer that it does not know, it takes
any number for the first one. If it refuses a first batch because it does not lead yet, and takes the second, which was on its
way too, the rows of the first are lost without an error: librdkafka takes them for delivered (confluent-kafka-go#921). Brokers
before 4.5 do so in new partitions (KAFKA-15591), and all of them in others. Once the first row is delivered, the leader knows
the producer, and so does whoever leads after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kafka.partitioner import codes_of, partition_of
from penstock.records import Partition

_KNOWN_S = 3_600.0
"""How long a leader is taken to know a producer: brokers forget it after a day, unless `producer.id.expiration.ms` is shorter."""


class FirstWrites:
    """Notes when a producer has last written to each partition."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[Partition, float] = {}

    def among(self, rows: pa.RecordBatch, topics: Sequence[str]) -> Any:
        """Return where the first row of each such partition is; rows have topics by index and partitions.

        The others of these rows count as written now.
        """
        codes, now = codes_of(rows), self._clock()
        present = {code: partition_of(code, topics) for code in np.unique(codes).tolist()}
        known = {place for place in present.values() if now - self._written.get(place, -np.inf) < _KNOWN_S}
        self._written.update(dict.fromkeys(known, now))
        new = [code for code, place in present.items() if place not in known]
        if not new:
            return np.empty(0, np.int64)
        found, first = np.unique(codes, return_index=True)
        return np.sort(first[np.isin(found, new)])

    def delivered(self, rows: pa.RecordBatch, topics: Sequence[str]) -> None:
        """Note that these rows are delivered."""
        now = self._clock()
        self._written.update((partition_of(code, topics), now) for code in codes_of(rows).tolist())
