"""What the other programs are about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """What somebody has ordered."""

    customer: str
    total: float
    at: int


@dataclass(frozen=True)
class Payment:
    """What somebody has paid."""

    amount: float


@dataclass(frozen=True)
class Customer:
    """Somebody."""

    name: str
