"""What a slot is on Spark: a task of the lane job, which connects to the driver and answers its requests until the driver closes.

It reads no input and shuffles nothing: while it runs, its executor's JVM only keeps its heartbeat.
"""

from __future__ import annotations

import hmac
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

import msgspec
from pyspark import TaskContext

from penstock.engines.connections import Address, connected
from penstock.engines.messages import Kind, receive, send
from penstock.engines.serving import Totals, serve


class Hello(msgspec.Struct, frozen=True):
    """What a task says about itself. `task` is Spark's number: a later attempt of a position has a larger one."""

    position: int
    task: int
    process: int
    host: str


encode_hello: Callable[[Hello], bytes] = msgspec.msgpack.Encoder().encode
decode_hello: Callable[[bytes], Hello] = msgspec.msgpack.Decoder(Hello).decode


@dataclass(frozen=True)
class LaneTask:
    """The function of all tasks. `key` proves to the driver that a task is one of its own."""

    driver: Address
    key: bytes = field(repr=False)

    def __call__(self, positions: Iterable[int]) -> Iterator[Totals]:
        """Serve as the slot of a position, which is the only one in the partition; yield what it has done."""
        [position] = positions
        context = TaskContext.get()
        assert context is not None
        connection = connected(self.driver, self.key)
        with connection:
            hello = Hello(position, context.taskAttemptId(), os.getpid(), address_here(connection))
            introduce(connection, self.key, hello)
            try:
                _, program = receive(connection)
            except (EOFError, OSError):
                return  # the driver has another task for the position, or is gone
            yield serve(connection, program)


def introduce(connection: socket.socket, key: bytes, hello: Hello) -> None:
    """Answer the driver's challenge, and say hello."""
    _, challenge = receive(connection)
    content = encode_hello(hello)
    send(connection, Kind.HELLO, hmac.digest(key, bytes(challenge) + content, "sha256") + content)


_NAMED_BY = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
"""Variables by which a host of Spark is told its address or name."""


def address_here(driver: socket.socket) -> str:
    """Return where other hosts reach this one: as it was told, or the address that a connection to the driver comes from.

    The name of a host is often known to itself alone, as that of a pod; on Debian, it is that of a loopback address there.
    """
    told = next((value for name in _NAMED_BY if (value := os.environ.get(name))), None)
    if told is not None:
        return told
    if driver.family == socket.AF_UNIX:
        return socket.gethostname()
    own = str(driver.getsockname()[0])
    # On the driver's own host, if that has told executors a loopback address: of no use to others.
    return socket.gethostname() if ip_address(own.partition("%")[0]).is_loopback else own
