"""`Commits`: commits epochs in order, in a thread of its own, while the next epoch runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context


class Commits:
    """The pending commits of an application. After one has failed, later ones are dropped."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._pending: deque[Future[None]] = deque()
        self._last: Future[None] | None = None
        self._failure: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no commit is pending."""
        return all(commit.done() for commit in self._pending)

    def add(self, commit: Callable[[], None]) -> None:
        """Run `commit` after those before it; its log lines have the context of the caller."""
        self._last = self._executor.submit(copy_context().run, _after, self._last, commit)
        self._pending.append(self._last)

    def wait(self, most: int = 0) -> None:
        """Wait until at most `most` commits are pending; raises the error of one that has failed."""
        while len(self._pending) > most:
            self._failure = self._pending.popleft().exception() or self._failure
        if self._failure is not None:
            raise self._failure

    def forget_failure(self) -> None:
        """Continue after a failure; nothing may be pending."""
        self._last = self._failure = None

    def close(self) -> None:
        """End the thread, after the commits that are pending."""
        self._executor.shutdown()


def _after(before: Future[None] | None, commit: Callable[[], None]) -> None:
    """Run a commit, unless the one before it has failed."""
    if before is not None:
        before.result()
    commit()
