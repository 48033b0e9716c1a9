"""A recorder that has recorded every kind of event, and a clock that is moved by hand."""

from __future__ import annotations

import json
from typing import Any

from penstock.epochs.wire import LaneReport
from penstock.observation import CHOSEN, DEAD_LETTERS, PartitionReport, Recorder


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def an_epoch(recorder: Recorder, clock: Clock, number: int = 0, *, records: int = 10, is_sampled: bool = True) -> None:
    """Record an epoch of two lanes and two stages, with a phase of 0.2 s and one of 0.3 s."""
    recorder.epoch_begins(number, "job")
    clock.now += 0.2
    recorder.phase_begins("committing")
    clock.now += 0.3
    recorder.epoch_committed(
        records,
        {"counts": 4, CHOSEN: 2, DEAD_LETTERS: 1},
        [("KSTREAM-SOURCE-0000000000", "late", 2), ("KSTREAM-MAPVALUES-0000000001", "dead letter", 1)],
        [a_lane(lane, stage, is_sampled) for lane in (0, 1) for stage in (0, 1)],
        is_sampled,
    )


def a_lane(lane: int, stage: int, is_sampled: bool = True) -> LaneReport:
    if not is_sampled:
        return LaneReport(lane, stage, 5, 0.1)
    nodes = {"KSTREAM-SOURCE-0000000000": (5, 0.01)} if stage == 0 else {"KSTREAM-AGGREGATE-0000000003": (3, 0.02)}
    return LaneReport(lane, stage, 5, 0.1, 4_000 + lane, 50_000_000, nodes, {"words": (100 + lane, 8_000)} if stage else {})


def fed(recorder: Recorder, clock: Clock) -> None:
    """Record one of each: a restore, an epoch, positions, ends, lost input, a refresh, statistics of both clients."""
    recorder.restoring({0: 500, 1: 300})
    clock.now += 2
    recorder.restoring({0: 100, 1: 0})
    recorder.restored()
    an_epoch(recorder, clock)
    recorder.moved({("lines", 0): PartitionReport("lines", 0, 40, -1, 5_000, 4_000, is_idle=True)}, 4_000)
    recorder.saw_ends({("lines", 0): 50})
    recorder.lost_input(("lines", 0), 7)
    recorder.tables.refreshed("countries")
    recorder.clients.of("producer")(statistics("TxnCoordinator", msg_cnt=7, msg_size=900))
    recorder.clients.of("consumer")(statistics("GroupCoordinator", topics=PREFETCHED))


PREFETCHED = {"lines": {"topic": "lines", "partitions": {"0": {"fetchq_cnt": 3, "fetchq_size": 60}, "-1": {"fetchq_cnt": 0}}}}


def statistics(coordinator: str, **more: Any) -> str:
    """Return what librdkafka says about a client with a connection to a broker, to a coordinator and to a bootstrap server."""
    brokers = [
        a_broker(
            "host:9092/1", 1, "learned", outbuf_cnt=2, waitresp_cnt=5, rtt=a_window(50_000, 250_000), throttle=a_window(30, 30)
        ),
        a_broker(coordinator, -1, "logical", disconnects=4),
        a_broker("host:9092/bootstrap", -1, "configured", disconnects=9),
    ]
    return json.dumps({"name": "rdkafka#1", "msg_cnt": 0, "brokers": {each["name"]: each for each in brokers}, **more})


def a_broker(name: str, number: int, source: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "nodeid": number, "nodename": "host:9092", "source": source, "state": "UP", "rtt": a_window(), **more}


def a_window(median: int = 0, highest: int = 0) -> dict[str, int]:
    count = 20 if highest else 0
    return {"min": 0, "max": highest, "avg": median, "p50": median, "p99": highest, "p99_99": highest, "cnt": count}
