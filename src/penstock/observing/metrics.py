"""`/metrics`: what the recorder knows, in Prometheus' text form."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

from penstock.observing.recorder import Recorder


def exposition(application_id: str, recorder: Recorder, state: str) -> tuple[bytes, str]:
    """The payload, and its content type."""
    registry = CollectorRegistry()
    labels = {"application_id": application_id}
    Gauge("penstock_state", "1 for the state the application is in", [*labels, "state"], registry=registry).labels(
        **labels, state=state
    ).set(1)
    Counter("penstock_epochs", "Epochs committed", list(labels), registry=registry).labels(**labels).inc(recorder.totals.epochs)
    return generate_latest(registry), CONTENT_TYPE_LATEST
