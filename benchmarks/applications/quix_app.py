"""The measured topologies on Quix Streams, exactly once, in several processes of one consumer group.

Usage: quix_app.py TOPOLOGY SOURCE,SOURCE SINK APPLICATION_ID BOOTSTRAP_SERVERS STATE_DIR PROCESSES COMMIT_INTERVAL_S

Runs in an environment of its own (.parts/quix), without Penstock.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from quixstreams import Application, State
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.dataframe.windows import Count, Sum

Value = dict[str, Any]


def add(amount: Callable[[Value], int], store: str) -> Callable[[Value, State], list[int]]:
    """A function that counts and adds, and keeps both under a name."""

    def added(value: Value, state: State) -> list[int]:
        count, total = state.get(store, (0, 0))
        found = [count + 1, total + amount(value)]
        state.set(store, found)
        return found

    return added


def count_word(word: str, state: State) -> int:
    """One more of this word."""
    count: int = state.get("count", 0) + 1
    state.set("count", count)
    return count


class Topologies:
    """The topologies over the topics of an application."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def _stream(self, source: str, value: str = "json") -> StreamingDataFrame:
        return self._app.dataframe(self._app.topic(source, key_deserializer="str", value_deserializer=value))

    def _write(self, frame: StreamingDataFrame, sink: str, key: Callable[[Any], str] | None = None) -> None:
        frame.to_topic(self._app.topic(sink, key_serializer="str", value_serializer="json"), key=key)

    def stateless(self, sink: str, source: str) -> None:
        """(A) Filter and map."""
        kept = self._stream(source).filter(lambda value: value["amount"] % 2 == 0)
        self._write(kept.apply(lambda value: {**value, "amount": 2 * value["amount"]}), sink)

    def totals(self, sink: str, source: str) -> None:
        """(B, H) Count and sum by key."""
        self._write(self._stream(source).apply(add(lambda value: value["amount"], "totals"), stateful=True), sink)

    def words(self, sink: str, source: str) -> None:
        """(C) Word count."""
        separate = self._stream(source, "str").apply(str.split, expand=True)
        self._write(_grouped(separate, lambda word: word, "words", "str").apply(count_word, stateful=True), sink)

    def enriched(self, sink: str, orders: str, users: str) -> None:
        """(D) Join with the last user before an order, then count and sum by region."""
        sales = self._stream(orders).join_asof(
            self._stream(users),
            on_merge=lambda order, user: {"region": user["region"], "sale": order["amount"] * user["rate"]},
        )
        regions = _grouped(sales, lambda sale: sale["region"], "regions", "json")
        self._write(regions.apply(add(lambda sale: sale["sale"], "regions"), stateful=True), sink)

    def hopping(self, sink: str, source: str) -> None:
        """(F) Count and sum by key in hopping windows."""
        windows = self._stream(source).hopping_window(10_000, 5_000, grace_ms=30_000)
        self._windowed(windows.agg(n=Count(), total=Sum("amount")).current(closing_strategy="partition"), sink)

    def sessions(self, sink: str, source: str) -> None:
        """(G) Count and sum of closed sessions."""
        windows = self._stream(source).session_window(5_000, grace_ms=1_000)
        self._windowed(windows.agg(n=Count(), total=Sum("amount")).final(closing_strategy="partition"), sink)

    def rekeyed(self, sink: str, source: str) -> None:
        """(I) Count and sum by key, twice, each time under a new key."""
        first = _grouped(self._stream(source), lambda value: "a" + value["user"], "first", "json")
        summed = first.apply(
            lambda value, state: {"user": value["user"], "total": add(_amount, "first")(value, state)[1]}, stateful=True
        )
        second = _grouped(summed, lambda value: "ba" + value["user"], "second", "json")
        self._write(second.apply(add(lambda value: value["total"], "second"), stateful=True), sink)

    def rekeyed_times(self, depth: int, sink: str, source: str) -> None:
        """(M) Count and sum by key behind as many exchanges."""
        frame = self._stream(source)
        for number in range(1, depth + 1):
            frame = _grouped(frame, _user_behind("a" * number), f"depth{number}", "json")
        self._write(frame.apply(add(_amount, "totals"), stateful=True), sink)

    def _windowed(self, windows: StreamingDataFrame, sink: str) -> None:
        """Write results under their key and the start of their window. A new key can only come from the value."""
        self._write(windows.apply(_result_of_window, metadata=True), sink, key=lambda value: value["at"])


def _result_of_window(value: Value, key: str, timestamp: int, headers: Any) -> Value:
    return {"n": value["n"], "total": value["total"], "at": f"{key}@{value['start']}"}


def _user_behind(prefix: str) -> Callable[[Value], str]:
    return lambda value: f"{prefix}{value['user']}"


def _amount(value: Value) -> int:
    amount: int = value["amount"]
    return amount


def _grouped(frame: StreamingDataFrame, key: Callable[[Any], str], name: str, kind: str) -> StreamingDataFrame:
    return frame.group_by(
        key, name=name, value_deserializer=kind, value_serializer=kind, key_deserializer="str", key_serializer="str"
    )


def topology(topologies: Topologies, name: str) -> Callable[..., None]:
    """A topology by its name."""
    if name.startswith("depth-"):
        return lambda *topics: topologies.rekeyed_times(int(name.removeprefix("depth-")), *topics)
    known: Mapping[str, Callable[..., None]] = {
        "stateless": topologies.stateless,
        "totals": topologies.totals,
        "words": topologies.words,
        "enriched": topologies.enriched,
        "hopping": topologies.hopping,
        "sessions": topologies.sessions,
        "rekeyed": topologies.rekeyed,
    }
    return known[name]


def work(number: int, arguments: list[str]) -> None:
    """One process of the group, with its own state."""
    name, sources, sink, application_id, bootstrap_servers, state_dir, _, commit_interval_s = arguments
    app = Application(
        broker_address=bootstrap_servers,
        consumer_group=application_id,
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        state_dir=f"{state_dir}/{number}",
        commit_interval=float(commit_interval_s),
        producer_extra_config={"compression.type": "lz4", "linger.ms": 5},
        loglevel="WARNING",
    )
    topology(Topologies(app), name)(sink, *sources.split(","))
    app.run()


def main() -> int:
    """Start the processes; end all of them on SIGTERM, or when one has ended."""
    arguments = sys.argv[1:]
    processes = [multiprocessing.Process(target=work, args=(number, arguments)) for number in range(int(arguments[6]))]
    for process in processes:
        process.start()
    over: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(0))
    while not over:
        if not all(process.is_alive() for process in processes):
            over.append(1)
        time.sleep(0.1)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
    return over[0]


if __name__ == "__main__":
    sys.exit(main())
