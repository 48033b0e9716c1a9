"""The measured application, as a user would write and start it.

Usage: penstock_app.py TOPOLOGY SOURCE SINK APPLICATION_ID BOOTSTRAP_SERVERS STATE_DIR
"""

from __future__ import annotations

import sys

from penstock import App, StreamsBuilder, Topology


def totals(source: str, sink: str) -> Topology:
    """Count and sum per key."""
    builder = StreamsBuilder()
    (
        builder.stream(source, value=dict)
        .group_by_key()
        .aggregate(lambda: [0, 0], lambda _, value, total: [total[0] + 1, total[1] + value["amount"]], store="totals")
        .to_stream()
        .to(sink)
    )
    return builder.build()


def rekeyed(source: str, sink: str) -> Topology:
    """Count and sum per key, twice, each time under a new key."""
    builder = StreamsBuilder()
    (
        builder.stream(source, value=dict)
        .select_key(lambda key, _: "a" + key)
        .group_by_key()
        .aggregate(lambda: [0, 0], lambda _, value, total: [total[0] + 1, total[1] + value["amount"]], store="first")
        .to_stream()
        .select_key(lambda key, _: "b" + key)
        .group_by_key()
        .aggregate(lambda: [0, 0], lambda _, value, total: [total[0] + 1, total[1] + value[1]], store="second")
        .to_stream()
        .to(sink)
    )
    return builder.build()


if __name__ == "__main__":
    name, source, sink, application_id, bootstrap_servers, state_dir = sys.argv[1:]
    topology = {"totals": totals, "rekeyed": rekeyed}[name](source, sink)
    App(application_id, topology).run(bootstrap_servers=bootstrap_servers, lanes=2, state_dir=state_dir)
