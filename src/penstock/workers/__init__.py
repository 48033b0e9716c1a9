"""Worker processes of the driver: they run epochs and restore lanes without Spark."""

from penstock.workers.jobs import WorkerJobs
from penstock.workers.output import LineReader
from penstock.workers.pool import WorkerPool

__all__ = ["LineReader", "WorkerJobs", "WorkerPool"]
