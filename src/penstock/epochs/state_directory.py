"""The files of lanes on a machine: one directory per application, one store per lane, one owner at a time.

Tasks of a killed driver may keep running for seconds. Kafka fences its producer, but not its files. So a lane holds a shared lock
on the application's directory while its store is open, a starting application takes that lock exclusively and writes its
incarnation, and a lane of another incarnation refuses to open.
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

from penstock import machine
from penstock.epochs.program import Program
from penstock.errors import FencedError, StateError
from penstock.state import EngineFactory, EngineKind, LaneState, memory_engine
from penstock.state.remote.hosting import ensure_server

LOCK_TIMEOUT_S = 60
_ATTEMPT = "#"
"""Separates an incarnation from its attempt."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class StateDirectory:
    """The directory of an application on this machine."""

    def __init__(self, directory: str, application_id: str) -> None:
        self.root: Path = Path(directory) / application_id

    def take_over(self, incarnation: str) -> None:
        """Become the owner; waits until no lane of an earlier owner has a store open."""
        self._make_private()
        with self._locked(fcntl.LOCK_EX):
            if self._boot_changed():
                self.forget()
            (self.root / "clean").unlink(missing_ok=True)
            _write(self.root / "boot", _boot())
            _write(self.root / "incarnation", incarnation)

    def settle(self) -> None:
        """Prepare the directory on a host of a cluster: as `take_over`, but anyone may have lanes there."""
        self._make_private()
        with self._locked(fcntl.LOCK_EX):
            if _read(self.root / "boot") != _boot():
                self.forget()
                _write(self.root / "boot", _boot())

    def fence(self, incarnation: str, attempt: int) -> None:
        """Let only tasks of that attempt open stores from now on; waits until earlier ones have closed theirs."""
        with self._locked(fcntl.LOCK_EX):
            self._refuse_others(_read(self.root / "incarnation").partition(_ATTEMPT)[0], incarnation)
            _write(self.root / "incarnation", _owner(incarnation, attempt))

    def occupy(self) -> Callable[[], None]:
        """Mark the application as running in this process, until the returned function is called or the process ends."""
        file = os.open(self.root / "running", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: the instance that is being replaced holds it, too
        except BlockingIOError:
            os.close(file)
            raise StateError(f"Directory {self.root} is being removed by a reset. Start again when the reset is done.") from None
        return lambda: os.close(file)

    @contextmanager
    def vacant(self) -> Iterator[None]:
        """Prevent the application from starting on this machine while the block runs; raises if it is running."""
        if not self.root.exists():
            yield
            return
        with (self.root / "running").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateError(
                    f"Application {self.root.name!r} is running on this machine (a process holds {self.root}). Stop it first."
                ) from None
            yield

    def _make_private(self) -> None:
        """Create the directory, or refuse one that another user can change: its contents are trusted."""
        for directory in (self.root.parent, self.root):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.lstat()
            if stat.S_ISLNK(found.st_mode):
                raise StateError(
                    f"Directory {directory} is a symbolic link, whose target may change. Set state_dir to the target itself."
                )
            if found.st_mode & stat.S_IWOTH:
                raise StateError(f"Directory {directory} is writable for all users. Run chmod o-w, or use a directory below it.")
        if self.root.stat().st_uid != os.geteuid():
            raise StateError(f"Directory {self.root} belongs to another user. Run as that user, or use another state_dir.")
        self.root.chmod(0o700)
        (self.root / "lock").touch(mode=0o600)

    def let_go(self, incarnation: str) -> None:
        """Sync all files to disk and note that this was done, unless there is already a new owner."""
        with self._locked(fcntl.LOCK_EX):
            if _read(self.root / "incarnation").partition(_ATTEMPT)[0] == incarnation:
                for path in self.root.rglob("*"):
                    _sync(path)
                _write(self.root / "clean", incarnation)

    def forget(self) -> None:
        """Remove all stores; they will be rebuilt from their changelogs."""
        for directory in (*self.root.glob("lanes-*"), self.root / "global"):
            shutil.rmtree(directory, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything; waits until no lane has a store open."""
        if self.root.exists():
            with self._locked(fcntl.LOCK_EX):
                shutil.rmtree(self.root)

    def forget_others(self, lanes: int, unused_for_s: float = 0) -> None:
        """Remove the stores for other numbers of lanes, if nothing was written to them for so long."""
        for directory in self.root.glob("lanes-*"):
            if directory.name != f"lanes-{lanes}" and _is_unused(directory, unused_for_s):
                shutil.rmtree(directory, ignore_errors=True)

    @property
    def layouts(self) -> list[int]:
        """The numbers of lanes for which there are stores."""
        found = (directory.name.removeprefix("lanes-") for directory in self.root.glob("lanes-*"))
        return sorted(int(number) for number in found if number.isdecimal())

    def forget_other_globals(self, layout: str) -> None:
        """Remove the global stores if their layout or topics have changed; they will be read from their topics again."""
        if _read(self.root / "global-layout") != layout:
            self.forget_globals()
            _write(self.root / "global-layout", layout)

    def forget_globals(self) -> None:
        """Remove the global stores, which must be closed; they will be read from the beginning of their topics."""
        shutil.rmtree(self.global_directory, ignore_errors=True)

    def lane_directory(self, lane: int, lanes: int) -> Path:
        """Return the directory of a lane's store."""
        return self.root / f"lanes-{lanes}" / f"{lane:04}"

    @property
    def global_directory(self) -> Path:
        """The directory of the global stores, which all lanes read."""
        return self.root / "global"

    @contextmanager
    def held_by(self, incarnation: str, attempt: int = 0) -> Iterator[None]:
        """Hold the directory while stores are open; raises if another start, or a later attempt of this one, owns it."""
        with self._locked(fcntl.LOCK_SH):
            self._refuse_others(_read(self.root / "incarnation"), _owner(incarnation, attempt))
            yield

    def _refuse_others(self, owner: str, expected: str) -> None:
        if owner != expected:
            raise FencedError(f"Another instance of {self.root.name!r} has taken over {self.root}.")

    def _boot_changed(self) -> bool:
        """Whether the machine crashed with unsynced writes: stores are not synced to disk in every epoch."""
        return _read(self.root / "boot") != _boot() and not (self.root / "clean").exists()

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        deadline = machine.monotonic() + LOCK_TIMEOUT_S
        with (self.root / "lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if machine.monotonic() > deadline:
                        cure = "A task of an earlier start is stuck: kill its processes."
                        raise StateError(f"Directory {self.root} was locked for more than {LOCK_TIMEOUT_S} s. {cure}") from None
                    machine.sleep(0.01)
            yield


def _is_unused(directory: Path, seconds: float) -> bool:
    """Whether nothing in a directory was written for so long; not if files vanish meanwhile."""
    if not seconds:
        return True  # whatever the clock says
    try:
        return time.time() - max(path.lstat().st_mtime for path in (directory, *directory.rglob("*"))) >= seconds
    except FileNotFoundError:
        return False


@contextmanager
def owned(program: Program, attempt: int = 0) -> Iterator[None]:
    """Hold the directory of an application while stores are open.

    On several hosts nobody can hold all directories: there, each write of a lane makes sure that it continues the right one.
    """
    if program.is_spread:
        yield
        return
    with StateDirectory(program.directory, program.application_id).held_by(program.incarnation, attempt):
        yield


@contextmanager
def open_lane(program: Program, lane: int, attempt: int = 0) -> Iterator[LaneState]:
    """Open a lane's state for the block; `attempt` is that of the epoch."""
    home = StateDirectory(program.directory, program.application_id)
    if program.engine is EngineKind.MEMORY:
        raise StateError("Lanes need files: the memory engine is only for tests. Set store_engine to lmdb or rocksdb.")
    with owned(program, attempt):
        state = LaneState(EngineFactory(program.engine, str(home.lane_directory(lane, program.lanes))).open())
        try:
            yield state
        finally:
            state.close()


def server_of(program: Program, host: str) -> int:
    """Return the port of the lane server of this host, which is started if need be and listens at `host`."""
    home = StateDirectory(program.directory, program.application_id)
    lanes = home.lane_directory(0, program.lanes).parent
    return ensure_server(home.root, lanes, program.engine.value, host, program.server_key, program.incarnation, program.ports)


@contextmanager
def open_globals(program: Program) -> Iterator[LaneState | None]:
    """Open the global stores for reading; None if there are none."""
    if not program.global_stores:
        yield None
        return
    home = StateDirectory(program.directory, program.application_id)
    with to_read(EngineKind.LMDB, home.global_directory) as owner:
        yield owner.read_committed(owner.epoch)


@contextmanager
def lane_as_of(program: Program, epoch: int, directory: Path) -> Iterator[LaneState]:
    """Open a lane for reading, as of an epoch; it may be ahead."""
    if epoch < 0:
        yield LaneState(memory_engine())  # nothing was written before the first epoch, and the lane may have no files
        return
    with to_read(program.engine, directory) as owner:
        yield owner.read_committed(epoch)


@contextmanager
def to_read(engine: EngineKind, directory: Path) -> Iterator[LaneState]:
    """Open a store for reading, with what it has now."""
    owner = LaneState(EngineFactory(engine, str(directory)).open(read_only=True))
    try:
        yield owner
    finally:
        owner.close()


def _owner(incarnation: str, attempt: int) -> str:
    """Return the owner whose tasks may open stores."""
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
