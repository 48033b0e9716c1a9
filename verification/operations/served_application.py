"""An application in a separate process with an admin server, queried over HTTP."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sides.application import Application
from benchmarks.sides.job import Job
from benchmarks.sides.penstock import Penstock
from benchmarks.workloads.loading import Loaded, create
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

START_S = 120
TIMEOUT_S = 5


class Answer(NamedTuple):
    """The response; status 0 if there was none."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Admin:
    """The admin server of an application, by its address."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Answer:
        """Send a request."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as response:  # noqa: S310 - our own server
                return Answer(response.status, response.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())
        except OSError:
            return Answer(0, b"")

    def wait_until_ready(self) -> None:
        """Wait until records are being processed."""
        wait_until("the application is ready", lambda: self.get("/health/ready").status == 200, START_S)


class Serving(NamedTuple):
    """A running application, and its admin server."""

    application: Application
    admin: Admin
    job: Job


def job_of(broker: Broker, directory: Path, name: str, loaded: Loaded, topology: str = "totals") -> Job:
    """A job whose results no other job writes."""
    create(broker.bootstrap_servers, f"{name}-out")
    return Job(
        application_id=name,
        topology=topology,
        sources=loaded.sources,
        sink=f"{name}-out",
        bootstrap_servers=broker.bootstrap_servers,
        state_dir=directory / name,
    )


@contextlib.contextmanager
def serving(job: Job, environment: Mapping[str, str] | None = None) -> Iterator[Serving]:
    """The application of a job, which runs while the block runs."""
    with Application(Penstock(), job, environment) as application:
        yield Serving(application, Admin(job.admin_port), job)
