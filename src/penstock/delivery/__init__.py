"""Deliveries: the records of a topic, each exactly once, in another system that keeps the offsets together with them."""

from penstock.delivery.files import Files
from penstock.delivery.postgres import Postgres
from penstock.delivery.target import Target
from penstock.records import Delivered

__all__ = ["Delivered", "Files", "Postgres", "Target"]
