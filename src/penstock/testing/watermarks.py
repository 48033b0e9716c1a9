"""Watermarks in the test driver: one partition per topic, updated by each record; the clock is the driver's."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.lanes.sources import Arrival, Intake
from penstock.lanes.watermark import LaneWatermark
from penstock.records import NO_TIMESTAMP, RecordMetadata
from penstock.timing import WatermarkTracker
from penstock.topology import SourceNode, Topology


class TopicWatermarks:
    """The watermarks of a topology's topics."""

    def __init__(self, topology: Topology, now: int) -> None:
        sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and node.watermark is not None]
        strategies = {topic: node.watermark for node in sources for topic in node.topics if node.watermark}
        self._tracker = WatermarkTracker(strategies, started_at=now)
        self._high_times: dict[str, int] = {}
        self.are_told: bool = bool(sources)

    def attach(self, watermarks: Iterable[LaneWatermark], intake: Intake, topic: str, now: int) -> None:
        """Attach the topic's watermark to a record; it stays attached to results behind an exchange, in any shard."""
        strategy = intake.node.watermark
        if strategy is not None and topic not in self._tracker.watermarks:  # of a pattern
            self._tracker.add(topic, strategy, at=now)
        known = self._high_times if strategy is None else self._tracker.watermarks
        for watermark in watermarks:
            watermark.time = known.get(topic, NO_TIMESTAMP)

    def heard(self, intake: Intake, arrival: Arrival, origin: RecordMetadata, now: int) -> None:
        """Update the watermark after a record was processed."""
        strategy, topic = intake.node.watermark, origin.topic
        high = self._high_times.get(topic, NO_TIMESTAMP)
        self._high_times[topic] = max(high, arrival.timestamp)
        if strategy is not None:
            told = strategy.function is not None
            watermark = intake.told_watermark(arrival, origin, high) if told else arrival.timestamp - strategy.disorder_ms
            self._tracker.heard(topic, watermark, at=now)

    def advance(self, now: int) -> int:
        """The application's watermark; -1 if no source declares one."""
        return self._tracker.advance(at=now) if self.are_told else NO_TIMESTAMP
