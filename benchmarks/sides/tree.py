"""A process and its descendants, watched from outside: CPU time by part, and memory at its peak.

Resident memory counts a page once for each process that has it; proportional memory (PSS) counts it once. Forked workers share
most of their pages, so the second is the memory that the machine needs. Reading it is slow: it is read less often.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import psutil

RSS_EVERY_S = 0.25
PSS_EVERY = 8
"""Readings of resident memory for one of proportional memory."""


class Tree:
    """Starts to watch at once, until it is closed."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._spent: dict[int, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.peak_rss_bytes = 0
        self.peak_pss_bytes = 0
        self._watch = threading.Thread(target=self._sample, daemon=True)
        self._watch.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._watch.join()

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time so far by part: the process that was started, Java's compiler, Java and all other descendants.

        The time of processes that have ended is included, as far as it was seen.
        """
        compiling_s = 0.0
        for process in self._processes():
            self._note(process)
            with contextlib.suppress(psutil.Error):
                if process.name() == "java":
                    compiling_s += _compiling_seconds(process)
        with self._lock:
            parts: dict[str, float] = {}
            for part, seconds in self._spent.values():
                parts[part] = parts.get(part, 0.0) + seconds
        holder = "jvm" if "jvm" in parts else "application"
        if compiling_s:
            parts[holder] -= compiling_s
            parts["compiler"] = compiling_s
        return parts

    def descendants(self) -> list[psutil.Process]:
        """All processes below the one that was started."""
        return self._processes()[1:]

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return []

    def _note(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            part = "application" if process == self._root else "jvm" if process.name() == "java" else "workers"
            with self._lock:
                self._spent[process.pid] = part, times.user + times.system

    def _sample(self) -> None:
        reading = 0
        while not self._over.wait(RSS_EVERY_S):
            processes = self._processes()
            rss_bytes = 0
            for process in processes:
                self._note(process)
                with contextlib.suppress(psutil.Error):
                    rss_bytes += process.memory_info().rss
            self.peak_rss_bytes = max(self.peak_rss_bytes, rss_bytes)
            if reading % PSS_EVERY == 0:
                self.peak_pss_bytes = max(self.peak_pss_bytes, sum(_pss_bytes(process.pid) for process in processes))
            reading += 1


def _pss_bytes(pid: int) -> int:
    """0 if the process has ended, or on systems without this figure."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _compiling_seconds(process: psutil.Process) -> float:
    """CPU time of Java's compiler threads; 0 on systems that do not show the names of threads."""
    spent_s = 0.0
    for thread in process.threads():
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text(encoding="utf-8")
            if name.startswith(("C1 Compiler", "C2 Compiler")):
                spent_s += thread.user_time + thread.system_time
    return spent_s
