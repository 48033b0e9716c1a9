"""The JSON documents of the records: a number, a user, an amount, and text up to a fixed size."""

from __future__ import annotations

import random

from benchmarks.workloads.workload import SEED

SMALL_BYTES = 100
LARGE_BYTES = 1_000


def _text(size: int) -> str:
    """Letters that no codec compresses much."""
    return "".join(random.Random(SEED).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


_TEXT = _text(1 << 16)


def document(number: int, key: str, amount: int, size: int = SMALL_BYTES) -> bytes:
    """A document of exactly `size` bytes."""
    head = f'{{"id":{number},"user":"{key}","amount":{amount},"note":"'
    length = size - len(head) - 2
    begin = number * 101 % (len(_TEXT) - LARGE_BYTES)
    return f'{head}{_TEXT[begin : begin + length]}"}}'.encode()
