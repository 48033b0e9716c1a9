"""A lane walks an epoch: merge, operators, caches, punctuators; hosted by the test driver and by Spark tasks alike."""

from penstock.lanes.epoch import RECORDS, walk
from penstock.lanes.lane import Lane
from penstock.lanes.outbox import Row

__all__ = ["RECORDS", "Lane", "Row", "walk"]
