"""The Java side as a process: compiled when its sources change, started once, fed one case per line."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from verification.conformance.spec import Case, to_json
from verification.harness.processes import KAFKA_JARS, PARTS, ROOT

if TYPE_CHECKING:
    from typing_extensions import Self

SOURCES = ROOT / "verification" / "conformance" / "oracle"
CLASSES = PARTS / "oracle"
ANSWER_TIMEOUT_S = 60


class OracleError(Exception):
    """The oracle could not be built, did not start, or stopped responding: the run proves nothing."""


class OracleSilentError(OracleError):
    """The oracle does not return a pending answer."""


def compile_oracle() -> None:
    """Compile the Java sources unless the classes are up to date."""
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    stamp = CLASSES / "sources.sha256"
    if stamp.exists() and stamp.read_text() == digest:
        return
    if not any(KAFKA_JARS.glob("kafka-streams-test-utils-*.jar")):
        raise OracleError(f"no Kafka Streams in {KAFKA_JARS.relative_to(ROOT)}; run `make setup`")
    CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-cp", f"{KAFKA_JARS}/*", "-d", str(CLASSES), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OracleError(f"javac failed:\n{done.stderr}")
    stamp.write_text(digest)


def _memory_disk() -> list[str]:
    """A directory in memory for state, if the system has one: state is created and removed thousands of times."""
    memory = Path("/dev") / "shm"
    return [f"-Djava.io.tmpdir={memory}"] if os.access(memory, os.W_OK) else []


class Oracle:
    """A Java virtual machine that answers cases in order.

    If it hangs or dies, it is restarted at the pending case; a case that fails twice this way ends the run.
    """

    def __init__(self) -> None:
        compile_oracle()
        self.restarts = 0
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def ask(self, case: Case) -> dict[str, Any]:
        """The oracle's result of one case."""
        return next(self.ask_all([case]))

    def ask_all(self, cases: Iterable[Case]) -> Iterator[dict[str, Any]]:
        """The oracle's results, in order; it works ahead while the caller does something else."""
        asked = list(cases)
        owed = 0
        self._send(asked)
        while owed < len(asked):
            try:
                answer = self._answer(asked[owed])
            except OracleSilentError:
                self.restarts += 1
                self._stop()
                self._start()
                self._send(asked[owed:])
                answer = self._answer(asked[owed])
            yield answer
            owed += 1

    def _start(self) -> None:
        command = ["java", "-Xmx1g", "-XX:+UseSerialGC", *_memory_disk(), "-cp", f"{CLASSES}:{KAFKA_JARS}/*", "Oracle"]
        self._java = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._reading = threading.Thread(target=_read, args=(self._java, self._answers), daemon=True)
        self._reading.start()

    def _stop(self) -> None:
        self._java.kill()
        self._java.wait()
        self._reading.join()
        for pipe in (self._java.stdin, self._java.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _send(self, cases: list[Case]) -> None:
        threading.Thread(target=_write, args=(self._java, cases), daemon=True).start()

    def _answer(self, case: Case) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            raise OracleSilentError(f"no answer for case {case.id} within {ANSWER_TIMEOUT_S} s") from None
        if line is None:
            raise OracleSilentError(f"the oracle ended at case {case.id} with exit code {self._java.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if answer["id"] != case.id:
            raise OracleError(f"asked for case {case.id}, got {answer['id']}")
        return answer


def _write(java: subprocess.Popen[str], cases: list[Case]) -> None:
    if java.stdin is None:
        raise OracleError("the oracle has no input")
    try:
        for case in cases:
            java.stdin.write(to_json(case) + "\n")
            java.stdin.flush()
    except (BrokenPipeError, ValueError):
        return  # the reader detects the end of the output and raises


def _read(java: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    if java.stdout is not None:
        for line in java.stdout:
            answers.put(line)
    answers.put(None)
