"""`/config`: the settings of the application. Only those on a list are shown, all others are hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from penstock.admin.answers import Json
from penstock.admin.reports import engine_report
from penstock.config import Config
from penstock.runtime.application import RunningApplication
from penstock.settings import CLIENTS, is_secret

HIDDEN = "[hidden]"

_SHOWN = frozenset(
    {
        "guarantee",
        "lanes",
        "shards",
        "epoch_interval_ms",
        "max_epoch_records",
        "max_epoch_bytes",
        "engine",
        "small_epoch_records",
        "blocking_threads",
        "large_backlog_records",
        "epochs_in_flight",
        "state_dir",
        "state_copies",
        "state_copy_interval_ms",
        "cluster_ports",
        "store_engine",
        "on_lost_input",
        "writers",
        "transaction_timeout_ms",
        "broker_timeout_ms",
        "create_topics",
        "topic_partitions",
        "replication_factor",
        "epoch_timeout_ms",
        "standby",
        "standby_address",
        "standby_timeout_ms",
        "admin_address",
        "admin_hosts",
        "log_format",
        "log_level",
        "plugins",
        "columns",
        "tracing",
    }
)
_KAFKA = frozenset(
    {
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "client.id",
        "client.rack",
        "compression.type",
        "linger.ms",
        "batch.size",
        "message.max.bytes",
        "request.timeout.ms",
        "message.timeout.ms",
        "session.timeout.ms",
        "max.poll.interval.ms",
        "metadata.max.age.ms",
    }
)
_SPARK = frozenset(
    {
        "master",
        "spark.app.name",
        "spark.driver.memory",
        "spark.driver.cores",
        "spark.executor.memory",
        "spark.executor.memoryOverhead",
        "spark.executor.cores",
        "spark.executor.instances",
        "spark.dynamicAllocation.enabled",
        "spark.sql.shuffle.partitions",
    }
)
_REGISTRY = frozenset(
    {
        "url",
        "request.timeout.ms",
        "retry.timeout.ms",
        "auto.register.schemas",
        "use.latest.version",
        "normalize.schemas",
    }
)


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""

    async def config(request: Request) -> Json:
        return Json({**shown(running.config), "running_on": engine_report(running)})

    return [Route("/config", config)]


def shown(config: Config) -> dict[str, Any]:
    """Return every setting by name, with its value if it is on the list."""
    report: dict[str, Any] = {}
    for name in (field.name for field in fields(config) if field.name not in {"kafka", "spark", "schema_registry"}):
        value = getattr(config, name)
        report[name] = _plain(value) if name in _SHOWN or value is None else HIDDEN
    report["kafka"] = _allowed(config.kafka, _KAFKA)
    report["spark"] = _allowed(config.spark, _SPARK)
    report["schema_registry"] = _allowed(config.schema_registry, _REGISTRY)
    return report


def _allowed(settings: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {
        name: value if _without_client(name) in names and not is_secret(name, value) else HIDDEN
        for name, value in settings.items()
    }


def _without_client(name: str) -> str:
    return next((name.removeprefix(client) for client in CLIENTS if name.startswith(client)), name)


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value
