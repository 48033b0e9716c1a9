"""What the application knows about itself: `/state`, `/watermarks`, `/metrics`, `/debug/barriers`, `/debug/threads`.

All of it is read from frozen values without blocking; only metrics may call the JVM.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock.admin.answers import Json, known, refuse, whole_number
from penstock.admin.aside import Aside
from penstock.admin.health import restore_report
from penstock.engines.stacks import doing, stacks, stacks_directory
from penstock.observation import EpochReport, OpenEpoch, Worker
from penstock.observation.metrics import Metrics
from penstock.observation.recorder import RECENT
from penstock.runtime.application import RunningApplication
from penstock.spark.memory import JvmMemory

_BARRIERS = 20
_METRICS_S = 5.0
_STACKS_S = 10.0


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""
    measured = Metrics(
        running.application_id,
        running.recorder,
        lambda: running.state.value,
        epoch_timeout_s=running.config.epoch_timeout_ms / 1000,
        jvm=JvmMemory(),
    )
    exposition = Aside(measured.exposition, "metrics")
    asked_slots = Aside(lambda: slot_stacks(running), "stacks")

    async def metrics(request: Request) -> Response:
        try:
            payload, content_type = await exposition.answer(_METRICS_S)
        except TimeoutError:
            refuse(f"Collecting the metrics took longer than {_METRICS_S:g} s.", HTTPStatus.SERVICE_UNAVAILABLE)
        return Response(payload, headers={"content-type": content_type})

    async def state(request: Request) -> Json:
        return Json(state_report(running))

    async def watermarks(request: Request) -> Json:
        return Json(watermarks_report(running))

    async def barriers(request: Request) -> Json:
        return Json(barriers_report(running, whole_number(request, "last", _BARRIERS, RECENT)))

    async def threads(request: Request) -> PlainTextResponse:
        try:
            told = await asked_slots.answer(_STACKS_S)
        except TimeoutError:
            told = "The slots have not been asked: that takes too long.\n"
        return PlainTextResponse(f"{told}\nthe driver\n\n{thread_stacks()}")

    return [
        Route("/metrics", metrics),
        Route("/state", state),
        Route("/watermarks", watermarks),
        Route("/debug/barriers", barriers),
        Route("/debug/threads", threads),
    ]


def about_worker(worker: Worker) -> dict[str, Any]:
    """Return the process id of a worker, on a cluster with its host."""
    return worker._asdict() if worker.host else {"process": worker.process}


def engine_report(running: RunningApplication) -> dict[str, object]:
    """Return the engine, its slots and where they are; only its name before it is started."""
    where = running.recorder.whereabouts()
    return {"name": running.config.engine} if where is None else where.as_dict()


def state_report(running: RunningApplication) -> dict[str, Any]:
    """Return the application's state, its stores, the progress of its restore, and the memory of its workers."""
    recorder, topology = running.recorder, running.topology
    sizes = recorder.stores
    stores = [
        {
            "name": name,
            "kind": spec.kind.value,
            "global": name in topology.global_stores,
            "entries": sizes.entries.get(name),
            "bytes": sizes.size_bytes.get(name),
        }
        for name, spec in topology.stores.items()
    ]
    return {
        "application_id": running.application_id,
        "state": running.state.value,
        "paused": running.is_paused,
        "epoch": known(running.epoch),
        "engine": engine_report(running),
        "stores": stores,
        "restore": restore_report(recorder.restore),
        "memory": {"workers": [{**about_worker(worker), "bytes": taken} for worker, taken in sorted(recorder.memory.items())]},
        "hosts": {str(lane): host for lane, host in sorted(recorder.hosts.items())},
    }


def watermarks_report(running: RunningApplication) -> dict[str, Any]:
    """Return the position of every source partition, and the application's watermark."""
    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "offset": known(place.offset),
            "end": known(place.end),
            "lag": known(place.lag),
            "high_time": known(place.high_time),
            "watermark": known(place.watermark),
            "idle": place.is_idle,
        }
        for _, place in sorted(running.recorder.partitions.items())
    ]
    return {"watermark": known(running.recorder.watermark), "partitions": partitions}


def barriers_report(running: RunningApplication, last: int) -> dict[str, Any]:
    """Return the current epoch and the last committed ones, newest first."""
    recorder = running.recorder
    recent = list(recorder.recent)[-last:]
    return {"current": _open_epoch(recorder.current), "recent": [_epoch(report) for report in reversed(recent)]}


def thread_stacks() -> str:
    """Return the stack of every thread of this process: code only, never values."""
    names = {thread.ident: f"{thread.name}{' (daemon)' if thread.daemon else ''}" for thread in threading.enumerate()}
    stacks = [
        f"{names.get(number, f'thread {number}')}\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    ]
    return "\n".join(sorted(stacks))


def slot_stacks(running: RunningApplication) -> str:
    """Return what the code of each slot of this host is doing, and its stacks; and which lanes it had last."""
    lanes: dict[int, set[int]] = {}
    for report in running.recorder.recent:
        for lane in report.lanes:
            lanes.setdefault(lane.worker, set()).add(lane.lane)
    directory = stacks_directory(str(running.config.state_dir.absolute()), running.application_id)
    return "\n".join(_about_slot(process, sorted(lanes.get(process, ())), told) for process, told in stacks(directory).items())


def _about_slot(process: int, lanes: Sequence[int], told: str) -> str:
    had = f", which had the lanes {', '.join(map(str, lanes))}" if lanes else ""
    code = [f"  in your code: {place}" for place in doing(told)] or ["  not in your code"]
    return "\n".join([f"slot {process}{had}", *(code if told else ["  it does not answer"]), "", told])


def _open_epoch(current: OpenEpoch | None) -> dict[str, Any] | None:
    if current is None:
        return None
    now = time.monotonic()
    return {
        "epoch": current.number,
        "phase": current.phase,
        "seconds": round(now - current.began, 3),
        "phase_seconds": round(now - current.phase_began, 3),
    }


def _epoch(report: EpochReport) -> dict[str, Any]:
    return {
        "epoch": report.number,
        "began_ms": report.began_ms,
        "seconds": report.seconds,
        "records": report.records,
        "phases": report.phases,
        "sent": report.sent,
        "dropped": [{"node": node, "reason": reason, "records": count} for node, reason, count in report.dropped],
        "lanes": [
            {"lane": lane.lane, "stage": lane.stage, "records": lane.records, "seconds": lane.seconds} for lane in report.lanes
        ],
    }
