"""Where lanes live on a machine: one directory per application, one store per lane, one owner at a time.

A killed driver's tasks may go on for seconds. Kafka fences its producer, not its files: so a lane holds a shared lock on the
application's directory while its store is open, a starting application takes that lock exclusively and writes its incarnation,
and a lane of another incarnation refuses to open.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.epochs.program import Program
from penstock.errors import FencedError, StateError
from penstock.state import EngineFactory, EngineKind, LaneState, memory_engine

LOCK_TIMEOUT_S = 60
_ATTEMPT = "#"
"""Between an incarnation and its attempt."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Home:
    """The directory of an application on this machine."""

    def __init__(self, directory: str, application_id: str) -> None:
        self.root: Path = Path(directory) / application_id

    def take_over(self, incarnation: str) -> None:
        """Become the owner: waits until no lane of an earlier one has a store open."""
        self._make_private()
        with self._locked(fcntl.LOCK_EX):
            if self._boot_changed():
                self.forget()
            (self.root / "clean").unlink(missing_ok=True)
            _write(self.root / "boot", _boot())
            _write(self.root / "incarnation", incarnation)

    def fence(self, incarnation: str, attempt: int) -> None:
        """Let only tasks of that attempt open stores from now on: waits until those of earlier ones have let go of theirs."""
        with self._locked(fcntl.LOCK_EX):
            self._refuse_others(_read(self.root / "incarnation").partition(_ATTEMPT)[0], incarnation)
            _write(self.root / "incarnation", _owner(incarnation, attempt))

    def occupy(self) -> Callable[[], None]:
        """Show that this process runs the application, until what is returned is called or the process ends."""
        file = os.open(self.root / "running", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: an instance that is taken over from has it, too
        except BlockingIOError:
            os.close(file)
            raise StateError(f"{self.root} is being removed: the application is being reset; start again afterwards") from None
        return lambda: os.close(file)

    @contextmanager
    def vacant(self) -> Iterator[None]:
        """While the block runs, nobody begins to run the application here; refuses if somebody does already."""
        if not self.root.exists():
            yield
            return
        with (self.root / "running").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError(
                    f"{self.root.name!r} runs on this machine (a process holds {self.root}); stop it first"
                ) from None
            yield

    def _make_private(self) -> None:
        """Make the directory, or refuse one that is somebody else's to change: what is in it is believed."""
        for directory in (self.root.parent, self.root):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.lstat()
            if stat.S_ISLNK(found.st_mode):
                raise StateError(
                    f"{directory} is a link, which may lead elsewhere tomorrow; write where it leads to as state_dir"
                )
            if found.st_mode & stat.S_IWOTH:
                raise StateError(f"anybody can write to {directory}; take that right away (chmod o-w), or use one below it")
        if self.root.stat().st_uid != os.geteuid():
            raise StateError(f"{self.root} belongs to another user; run as that user, or use another state_dir")
        self.root.chmod(0o700)
        (self.root / "lock").touch(mode=0o600)

    def let_go(self, incarnation: str) -> None:
        """Leave a sign that all has been written to disk, unless there is a new owner already."""
        with self._locked(fcntl.LOCK_EX):
            if _read(self.root / "incarnation").partition(_ATTEMPT)[0] == incarnation:
                for path in self.root.rglob("*"):
                    _sync(path)
                _write(self.root / "clean", incarnation)

    def forget(self) -> None:
        """Remove all stores; they are rebuilt from their changelogs."""
        for directory in (*self.root.glob("lanes-*"), self.root / "global"):
            shutil.rmtree(directory, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything: waits until no lane has a store open."""
        if self.root.exists():
            with self._locked(fcntl.LOCK_EX):
                shutil.rmtree(self.root)

    def forget_others(self, lanes: int) -> None:
        """Remove what was kept for other numbers of lanes."""
        for directory in self.root.glob("lanes-*"):
            if directory.name != f"lanes-{lanes}":
                shutil.rmtree(directory, ignore_errors=True)

    def forget_other_globals(self, layout: str) -> None:
        """Remove the global stores if they were laid out or fed otherwise: they are read from their topics again."""
        if _read(self.root / "global-layout") != layout:
            self.forget_globals()
            _write(self.root / "global-layout", layout)

    def forget_globals(self) -> None:
        """Remove the global stores, which nobody has open: they are read from the beginning of their topics."""
        shutil.rmtree(self.global_directory, ignore_errors=True)

    def lane_directory(self, lane: int, lanes: int) -> Path:
        """Where a lane's store is."""
        return self.root / f"lanes-{lanes}" / f"{lane:04}"

    @property
    def global_directory(self) -> Path:
        """Where the global stores are, which all lanes read."""
        return self.root / "global"

    @contextmanager
    def held_by(self, incarnation: str, attempt: int = 0) -> Iterator[None]:
        """While stores are open: refuses if somebody else owns the directory by now, or a later attempt of the same start."""
        with self._locked(fcntl.LOCK_SH):
            self._refuse_others(_read(self.root / "incarnation"), _owner(incarnation, attempt))
            yield

    def _refuse_others(self, owner: str, expected: str) -> None:
        if owner != expected:
            raise FencedError(f"another instance of {self.root.name!r} has taken over {self.root}")

    def _boot_changed(self) -> bool:
        """Whether the machine went down with writes in memory: stores are not synced to disk at every epoch."""
        return _read(self.root / "boot") != _boot() and not (self.root / "clean").exists()

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        with (self.root / "lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        cure = "a task of an earlier start is stuck; end its processes"
                        raise StateError(f"{self.root} is in use for more than {LOCK_TIMEOUT_S} s: {cure}") from None
                    time.sleep(0.01)
            yield


@contextmanager
def open_lane(program: Program, lane: int, attempt: int = 0) -> Iterator[LaneState]:
    """A lane's state, open while the block runs; `attempt` is that of the epoch."""
    home = Home(program.directory, program.application_id)
    if program.engine is EngineKind.MEMORY:
        raise StateError("lanes need files: an engine in memory is for tests")
    with home.held_by(program.incarnation, attempt):
        state = LaneState(EngineFactory(program.engine, str(home.lane_directory(lane, program.lanes))).open())
        try:
            yield state
        finally:
            state.close()


@contextmanager
def open_globals(program: Program) -> Iterator[LaneState | None]:
    """The global stores, to read; None if there are none."""
    if not program.global_stores:
        yield None
        return
    home = Home(program.directory, program.application_id)
    with _to_read(EngineKind.LMDB, home.global_directory) as owner:
        yield owner.read_committed(owner.epoch)


@contextmanager
def committed_lane(program: Program, committed: int, directory: Path) -> Iterator[LaneState]:
    """A lane as of the last barrier, to read."""
    if committed < 0:
        yield LaneState(memory_engine())  # nothing was ever committed, and the lane may have no files yet
        return
    with _to_read(program.engine, directory) as owner:
        yield owner.read_committed(committed)


@contextmanager
def _to_read(engine: EngineKind, directory: Path) -> Iterator[LaneState]:
    owner = LaneState(EngineFactory(engine, str(directory)).open(read_only=True))
    try:
        yield owner
    finally:
        owner.close()


def _owner(incarnation: str, attempt: int) -> str:
    """Whose tasks may open stores."""
    return f"{incarnation}{_ATTEMPT}{attempt}" if attempt else incarnation


def _boot() -> str:
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _sync(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
