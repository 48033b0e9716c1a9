"""What the harness starts and waits for: ports, Java, and waiting with a timeout."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ROOT / ".parts"
KAFKA_JARS = PARTS / "kafka"
BROKER_JARS = ROOT / os.environ.get("BROKER_JARS", ".parts/kafka")
"""Those of brokers and their tools: `make old-broker` has others."""


class HarnessError(Exception):
    """A part is missing, did not start or did not respond: the test proves nothing."""


_given: set[int] = set()


def free_port() -> int:
    """A free port on loopback, below the range of ephemeral ports; never the same again, as one server may need several.

    A client could take an ephemeral port while its server is down for a moment.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.closing(socket.socket()) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise HarnessError("no free port between 20000 and 32000")


def java(main_class: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command that runs a class from Kafka's jars."""
    if not any(BROKER_JARS.glob("kafka_2.13-*.jar")):
        raise HarnessError(f"no Kafka in {BROKER_JARS.relative_to(ROOT)}; run `make setup`")
    return ["java", *options, "-cp", f"{BROKER_JARS}/*", main_class, *arguments]


def run_java(main_class: str, *arguments: str, timeout_s: float = 60) -> str:
    """Run one of Kafka's command-line tools and return its output."""
    quick_start = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = java(main_class, *arguments, options=quick_start)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise HarnessError(f"{main_class} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block like an exception, so that what was started in it ends, too."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def wait_until(
    what: str,
    answers: Callable[[], bool],
    timeout_s: float = 60,
    every_s: float = 0.1,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Poll until `answers()` is true; after the timeout raise an error that names what was awaited.

    The timeout begins again whenever `progress()` changes.
    """
    seen, since = progress(), time.monotonic()
    while not answers():
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > timeout_s:
            raise HarnessError(f"timed out after {timeout_s:g} s: {what}")
        time.sleep(every_s)
