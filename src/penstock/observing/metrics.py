"""`Metrics`: what Prometheus reads, made when it is asked for from what the recorder knows."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from penstock.observing.recorder import Recorder


class Metrics:
    """The metrics of one start of an application."""

    def __init__(self, application_id: str, recorder: Recorder, state: Callable[[], str], *, epoch_timeout_s: float) -> None:
        self._labels = {"application": application_id}
        self._recorder = recorder
        self._state = state
        self._epoch_timeout_s = epoch_timeout_s

    def exposition(self) -> tuple[bytes, str]:
        """All metrics as they are now, and the content type to send them with."""
        registry = CollectorRegistry()
        names = [*self._labels, "state"]
        Gauge("penstock_state", "1 for the state it is in", names, registry=registry).labels(
            **self._labels, state=self._state()
        ).set(1)
        epochs = Counter("penstock_epochs", "Epochs committed", [*self._labels], registry=registry)
        epochs.labels(**self._labels).inc(self._recorder.totals.epochs)
        limit = Gauge("penstock_epoch_timeout_seconds", "How long an epoch may take", [*self._labels], registry=registry)
        limit.labels(**self._labels).set(self._epoch_timeout_s)
        return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4
