"""Statistics of Kafka clients: librdkafka's JSON, kept as it arrives and decoded when somebody asks.

A client delivers them while it is polled, so nothing is done there but to keep the text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

INTERVAL_MS = 10_000
"""How often clients give statistics, unless the user has set `statistics.interval.ms`; 0 turns them off."""

_log = logging.getLogger(__name__)

OnStatistics = Callable[[str], None]


class Window(msgspec.Struct, frozen=True):
    """Values since the statistics before."""

    cnt: int = 0
    p50: int = 0
    p99: int = 0
    max: int = 0


class BrokerReport(msgspec.Struct, frozen=True):
    """A connection: requests that wait to be sent, and for their answers; round trips in µs, throttling in ms."""

    name: str
    node_id: int = msgspec.field(name="nodeid")
    source: str = ""
    queued_requests: int = msgspec.field(name="outbuf_cnt", default=0)
    requests_in_flight: int = msgspec.field(name="waitresp_cnt", default=0)
    disconnects: int = 0
    round_trip: Window = msgspec.field(name="rtt", default=Window())
    throttle: Window = Window()

    @property
    def label(self) -> str | None:
        """The broker's number, or what the connection is for (`TxnCoordinator`); None for one only used to find the brokers."""
        if self.node_id >= 0:
            return str(self.node_id)
        return self.name if self.source == "logical" else None


class _Partition(msgspec.Struct, frozen=True):
    fetchq_cnt: int = 0
    fetchq_size: int = 0


class _Topic(msgspec.Struct, frozen=True):
    partitions: dict[str, _Partition] = {}


class ClientReport(msgspec.Struct, frozen=True):
    """The statistics of a client."""

    to_send: int = msgspec.field(name="msg_cnt", default=0)
    bytes_to_send: int = msgspec.field(name="msg_size", default=0)
    brokers: dict[str, BrokerReport] = {}
    topics: dict[str, _Topic] = {}

    @property
    def queued(self) -> tuple[int, int]:
        """Records that wait in the client, and their bytes: a producer's to be sent, a consumer's to be taken."""
        fetched = [partition for topic in self.topics.values() for partition in topic.partitions.values()]
        records, size = sum(each.fetchq_cnt for each in fetched), sum(each.fetchq_size for each in fetched)
        return self.to_send + records, self.bytes_to_send + size

    def connections(self) -> dict[str, BrokerReport]:
        """Return the connections by label."""
        return {broker.label: broker for broker in self.brokers.values() if broker.label is not None}


_decode = msgspec.json.Decoder(ClientReport).decode


class ClientStatistics:
    """The last statistics of each client of an application, by what it is for."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def of(self, client: str) -> OnStatistics:
        """Return the function that receives the statistics of a client; those of its successor replace them."""
        last = self._last

        def on_statistics(text: str) -> None:
            last[client] = text

        return on_statistics

    def reports(self) -> dict[str, ClientReport]:
        """Return the last statistics of all clients that have given any."""
        found = {}
        for client, text in sorted(self._last.items()):
            try:
                found[client] = _decode(text)
            except msgspec.MsgspecError as error:  # another version of librdkafka: metrics do without
                _log.debug("cannot read the statistics of the %s: %s", client, error)
        return found


def with_statistics(settings: Mapping[str, Any], on_statistics: OnStatistics | None) -> dict[str, Any]:
    """Return the settings of a client that gives its statistics to this function, if there is one."""
    if on_statistics is None:
        return dict(settings)
    return {"statistics.interval.ms": str(INTERVAL_MS), **settings, "stats_cb": on_statistics}
