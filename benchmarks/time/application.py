"""The application that calls the service for every record, as a user would write and start it.

Usage: python -m benchmarks.time.application SOURCE SINK APPLICATION_ID BOOTSTRAP_SERVERS STATE_DIR URL CONCURRENCY EPOCH_RECORDS
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import aiohttp

from penstock import App, StreamsBuilder, Topology


async def connect(url: str) -> aiohttp.ClientSession:
    """The client of a process; `concurrency` limits its connections."""
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0))


async def ask(value: dict[str, Any], client: aiohttp.ClientSession) -> dict[str, Any]:
    """The record with the service's answer."""
    async with client.get(f"/{value['number']}") as answer:
        answer.raise_for_status()
        return {**value, "answer": int(await answer.text())}


def enriched(source: str, sink: str, url: str, concurrency: int) -> Topology:
    """Each record with its answer, in order per key."""
    builder = StreamsBuilder()
    asked = builder.stream(source, value=dict).map_values_async(
        ask, concurrency=concurrency, timeout="10s", retries=2, setup=partial(connect, url), value=dict
    )
    asked.to(sink)
    return builder.build()


if __name__ == "__main__":
    source, sink, application_id, bootstrap_servers, state_dir, url, concurrency, epoch_records = sys.argv[1:]
    App(application_id, enriched(source, sink, url, int(concurrency))).run(
        bootstrap_servers=bootstrap_servers, lanes=2, shards=8, state_dir=state_dir, max_epoch_records=int(epoch_records)
    )
