"""Watermarks under test: one partition per topic, heard of record by record; the clock is the driver's."""

from __future__ import annotations

from penstock.lanes.lane import Attached
from penstock.lanes.sources import Arrival, Intake
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
        self.are_told = bool(sources)

    def attach(self, attached: Attached, intake: Intake, topic: str, now: int) -> None:
        """Let a record from a topic bring its time along; what follows from it behind an exchange keeps that."""
        strategy = intake.node.watermark
        if strategy is None:
            attached.time = self._high_times.get(topic, NO_TIMESTAMP)
            return
        if topic not in self._tracker.watermarks:  # of a pattern
            self._tracker.add(topic, strategy, at=now)
        attached.time = self._tracker.watermarks[topic]

    def heard(self, intake: Intake, arrival: Arrival, origin: RecordMetadata, now: int) -> None:
        """A record was processed."""
        strategy, topic = intake.node.watermark, origin.topic
        high = self._high_times.get(topic, NO_TIMESTAMP)
        self._high_times[topic] = max(high, arrival.timestamp)
        if strategy is not None:
            told = strategy.function is not None
            watermark = intake.told_watermark(arrival, origin, high) if told else arrival.timestamp - strategy.disorder_ms
            self._tracker.heard(topic, watermark, at=now)

    def advance(self, now: int) -> int:
        """The application's watermark; -1 where no source tells any."""
        return self._tracker.advance(at=now) if self.are_told else NO_TIMESTAMP
