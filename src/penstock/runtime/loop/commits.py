"""`Commits`: commits epochs in order, in a thread of its own, while the next epoch runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType

from penstock import machine


class _Commit:
    """A commit that is pending, with the context of the log of who has asked for it. As a context manager it keeps what fails."""

    def __init__(self, commit: Callable[[], None], after: _Commit | None) -> None:
        self._run = copy_context().run
        self._commit = commit
        self._after = after
        self.done = machine.event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Commit, unless the one before has failed; then it fails in the same way."""
        with self:
            after, self._after = self._after, None
            if after is not None and after.failure is not None:
                raise after.failure
            self._run(self._commit)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.failure = error
        self.done.set()
        return True


class Commits:
    """The pending commits of an application, `most` of them at a time. After one has failed, later ones are dropped."""

    def __init__(self, name: str, most: int = 0) -> None:
        self._name = name
        self._most = most
        self._thread: machine.Thread | None = None
        self._queue: deque[_Commit | None] = deque()
        self._has_more = machine.event()
        self._pending: deque[_Commit] = deque()
        self._last: _Commit | None = None
        self._failure: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no commit is pending."""
        return all(commit.done.is_set() for commit in self._pending)

    def add(self, commit: Callable[[], None]) -> None:
        """Run `commit` after those before it; its log lines have the context of the caller."""
        self._last = _Commit(commit, self._last)
        self._pending.append(self._last)
        self._give(self._last)
        if self._thread is None:
            self._thread = machine.thread(self._run, self._name)
            self._thread.start()

    def keep_up(self) -> None:
        """Wait until there are not too many; raises the error of one that has failed."""
        self._wait(self._most)

    def wait(self) -> None:
        """Wait for all of them; raises the error of one that has failed."""
        self._wait(0)

    def _wait(self, most: int) -> None:
        while len(self._pending) > most:
            first = self._pending.popleft()
            first.done.wait()
            self._failure = first.failure or self._failure
        if self._failure is not None:
            raise self._failure

    def forget_failure(self) -> None:
        """Continue after a failure; nothing may be pending."""
        self._last = self._failure = None

    def close(self) -> None:
        """End the thread, after the commits that are pending."""
        self._give(None)
        if self._thread is not None:
            self._thread.join()

    def _give(self, commit: _Commit | None) -> None:
        self._queue.append(commit)
        self._has_more.set()

    def _run(self) -> None:
        while True:
            while not self._queue:
                self._has_more.clear()
                if not self._queue:
                    self._has_more.wait()
            commit = self._queue.popleft()
            if commit is None:
                return
            commit.run()
