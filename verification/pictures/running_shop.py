"""The shop while it runs: its topics, orders that keep coming, and the application with its admin server."""

from __future__ import annotations

import contextlib
import json
import math
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from penstock.cli.requests import AdminConnection
from penstock.errors import PenstockError
from verification.chaos.application import Application
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.patience import TIMEOUT_S
from verification.harness.processes import free_port, wait_until
from verification.harness.server import Started
from verification.pictures import shop

COMMAND = (sys.executable, "-m", "penstock.cli", "run", "verification.pictures.shop:app")
USUAL_PORT = 7070
START_S = 60
STOP_S = 60
REGIONS = ("north", "south", "east", "west")
KNOWN_CUSTOMERS = 2_000

_TICK_S = 0.1
_WAVE_S = 20.0
_MEAN_PER_S, _SWING_PER_S = 1_500, 1_000
_LATE_EVERY_S, _LATE_MS = 3.0, 60_000
_BROKEN_EVERY_S = 7.0
_DISORDER_MS = 2_000


@contextlib.contextmanager
def running_shop(broker: Broker, directory: Path, *, engine: str = "local", arguments: Sequence[str] = ()) -> Iterator[str]:
    """Run the shop while the block runs, and yield the address of its admin server; `arguments` are for its command."""
    servers, url = broker.bootstrap_servers, f"http://127.0.0.1:{admin_port()}"
    for topic in shop.TOPICS:
        topics.create(servers, topic, partitions=4)
    topics.produce(servers, shop.CUSTOMERS, customers())
    environment = {
        "PENSTOCK_BOOTSTRAP_SERVERS": servers,
        "PENSTOCK_ENGINE": engine,
        "PENSTOCK_STATE_DIR": str(directory / "state"),
        "PENSTOCK_ADMIN_ADDRESS": url.removeprefix("http://"),
        "PENSTOCK_EPOCH_INTERVAL": "500ms",  # longer than usual, so that the charts of the last 60 cover half a minute
    }
    application = Application(directory / "shop", environment, (*COMMAND, *arguments))
    application.start()
    try:
        with Orders(servers):
            wait_until("the shop is ready", lambda: _is_ready(url), START_S)
            yield url
        code = application.stop(STOP_S)
        assert code == 0, f"the shop ended with {code}:\n{application.log.read_text(errors='replace')[-2_000:]}"
    finally:
        application.close()


def admin_port() -> int:
    """The usual port, so that pictures show what users see; another one if it is taken."""
    with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", USUAL_PORT))
        return USUAL_PORT
    return free_port()


def _is_ready(url: str) -> bool:
    with contextlib.suppress(PenstockError):
        AdminConnection.at(url).get("/health/ready")
        return True
    return False


def customers() -> Iterator[topics.Sent]:
    """The customers, as they were an hour ago."""
    chance, hour_ago = random.Random(1), int(time.time() * 1000) - 3_600_000
    for number in range(KNOWN_CUSTOMERS):
        value = {"region": chance.choice(REGIONS), "since": 2018 + number % 8}
        yield topics.Sent(key=_customer(number), value=_json(value), timestamp=hour_ago)


class Orders(Started):
    """Writes orders until it is closed: a wave of them, and now and then one that is late, or that cannot be processed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
        self._chance = random.Random(2)
        self._written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, when everything is written."""
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        begun = before = time.monotonic()
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            per_s = _MEAN_PER_S + _SWING_PER_S * math.sin(2 * math.pi * (now - begun) / _WAVE_S)
            for _ in range(round(per_s * (now - before))):
                self._send(self._chance.randrange(_DISORDER_MS), self._amount())
            if _is_due(_LATE_EVERY_S, before - begun, now - begun):
                self._send(_LATE_MS, self._amount())
            if _is_due(_BROKEN_EVERY_S, before - begun, now - begun):
                self._send(0, f"{self._amount()} EUR")
            self._producer.poll(0)
            before = now
        self._producer.flush(TIMEOUT_S)

    def _amount(self) -> float:
        return round(self._chance.lognormvariate(3, 1), 2)

    def _send(self, ago_ms: int, amount: float | str) -> None:
        self._written += 1
        order = {"customer": _customer(self._chance.randrange(KNOWN_CUSTOMERS)).decode(), "amount": amount}
        key, timestamp = f"o-{self._written}".encode(), int(time.time() * 1000) - ago_ms
        self._producer.produce(shop.ORDERS, _json(order), key, timestamp=timestamp)


def _is_due(every_s: float, before_s: float, now_s: float) -> bool:
    """Whether a multiple of `every_s` lies between two times."""
    return now_s // every_s > before_s // every_s


def _customer(number: int) -> bytes:
    return f"customer-{number:04}".encode()


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()
