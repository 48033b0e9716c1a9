"""The types of data in the other programs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """An order of a customer."""

    customer: str
    total: float
    at: int


@dataclass(frozen=True)
class Payment:
    """A payment of an order."""

    amount: float


@dataclass(frozen=True)
class Customer:
    """A customer."""

    name: str
