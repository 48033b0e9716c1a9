"""The barrier goes through its phases in order, retries when the outcome is unknown, and stops for good at a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from penstock import faults
from penstock.errors import BrokerError, CommitError, FencedError, ProductionError
from penstock.kafka.commit import Committer, Phase, SourceOffset
from penstock.kafka.commit import committer as module

OFFSETS = [SourceOffset("input", 0, 5, "{}")]


class Recorder:
    """A publisher that only records its calls, and fails at the given one."""

    def __init__(self, fails_at: str = "", error: BaseException | None = None, answers: Sequence[bool] = ()) -> None:
        self.calls: list[object] = []
        self.fails_at = fails_at
        self.error = error or ProductionError("no")
        self.answers = list(answers)

    def _note(self, name: str, *what: object) -> None:
        self.calls.append((name, *what) if what else name)
        if name == self.fails_at:
            raise self.error

    def begin(self) -> None:
        self._note("begin")

    def produce(self, rows: object) -> None:
        self._note("produce", rows)

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        self._note("offsets", *offsets)

    def commit(self) -> bool:
        self._note("commit")
        return self.answers.pop(0) if self.answers else True

    def abort(self) -> None:
        self.calls.append("abort")
        if self.fails_at == "abort":
            raise CommitError("cannot abort")


def test_commits_an_epoch_in_order_and_is_idle_again() -> None:
    publisher = Recorder()
    phases: list[tuple[Phase, float]] = []
    ticks = count()
    committer = Committer(
        publisher, clock=lambda: float(next(ticks)), on_phase=lambda phase, seconds: phases.append((phase, seconds))
    )
    committer.commit(0, ["a", "b"], OFFSETS)
    assert publisher.calls == ["begin", ("produce", "a"), ("produce", "b"), ("offsets", *OFFSETS), "commit"]
    reached = [Phase.BEGUN, Phase.PRODUCED, Phase.OFFSETS_SENT, Phase.COMMITTING, Phase.COMMITTED, Phase.IDLE]
    assert [phase for phase, _ in phases] == reached
    assert all(seconds > 0 for _, seconds in phases)
    assert committer.phase is Phase.IDLE


def test_an_epoch_without_rows_commits_its_offsets() -> None:
    publisher = Recorder()
    Committer(publisher).commit(0, [], OFFSETS)
    assert publisher.calls == ["begin", ("offsets", *OFFSETS), "commit"]


@pytest.mark.parametrize("step", ["begin", "produce", "offsets"])
def test_a_failure_before_the_commit_aborts_and_is_final(step: str) -> None:
    publisher = Recorder(fails_at=step)
    committer = Committer(publisher)
    with pytest.raises(ProductionError):
        committer.commit(0, ["a"], OFFSETS)
    assert committer.phase is Phase.FAILED
    assert ("abort" in publisher.calls) == (step != "begin")
    publisher.calls.clear()
    with pytest.raises(CommitError, match=r"Cannot commit epoch 1: the committer is failed\. Start again"):
        committer.commit(1, ["a"], OFFSETS)
    assert not publisher.calls


def test_a_failure_while_batches_are_made_aborts_too() -> None:
    publisher = Recorder()
    with pytest.raises(ZeroDivisionError):
        Committer(publisher).commit(0, (1 // n for n in (1, 0)), OFFSETS)
    assert publisher.calls == ["begin", ("produce", 1), "abort"]


def test_an_interrupt_aborts_too() -> None:
    publisher = Recorder(fails_at="offsets", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        Committer(publisher).commit(0, [], OFFSETS)
    assert publisher.calls[-1] == "abort"


def test_a_failed_abort_does_not_hide_the_error(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Recorder(fails_at="abort")
    with pytest.raises(ZeroDivisionError):
        Committer(publisher).commit(3, (1 // n for n in (0,)), OFFSETS)
    assert "epoch 3: cannot abort the transaction, which will time out: cannot abort" in caplog.text


@pytest.mark.parametrize("error", [FencedError("gone"), CommitError("no"), KeyboardInterrupt()])
def test_nothing_is_aborted_once_the_commit_was_requested(error: Exception) -> None:
    publisher = Recorder(fails_at="commit", error=error)
    committer = Committer(publisher)
    with pytest.raises(type(error)):
        committer.commit(0, [], OFFSETS)
    assert "abort" not in publisher.calls
    assert committer.phase is Phase.FAILED


def test_retries_until_the_outcome_is_known(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Recorder(answers=[False, False, True])
    retries: list[int] = []
    with caplog.at_level(logging.WARNING):
        Committer(publisher, on_retry=lambda: retries.append(1)).commit(7, [], OFFSETS)
    assert len(retries) == 2
    assert publisher.calls.count("commit") == 3
    assert caplog.text.count("epoch 7: it is not known yet whether the commit succeeded") == 2


def test_gives_up_after_its_patience_and_aborts_nothing() -> None:
    publisher = Recorder(answers=[False] * 100)
    seconds = count()
    committer = Committer(publisher, patience_ms=10_000, clock=lambda: float(next(seconds)))
    with pytest.raises(
        BrokerError, match=r"Epoch 7: no broker has confirmed the commit within 10 s\. Start again: the start finds out"
    ):
        committer.commit(7, [], OFFSETS)
    assert publisher.calls.count("commit") == 10
    assert "abort" not in publisher.calls


def test_refuses_an_epoch_or_offset_that_goes_back() -> None:
    def after(epoch: int, offset: int) -> Committer:
        committer = Committer(Recorder())
        committer.commit(epoch, [], [SourceOffset("input", 0, offset, "{}")])
        return committer

    with pytest.raises(CommitError, match="Epoch 4 cannot follow epoch 4, which is already committed"):
        after(4, 5).commit(4, [], OFFSETS)
    with pytest.raises(CommitError, match="Epoch 5: input-0 goes back from offset 6 to 5"):
        after(4, 6).commit(5, [], OFFSETS)
    after(4, 5).commit(5, [], OFFSETS)
    after(4, 6).commit(5, [], [SourceOffset("other", 0, 1, "{}")])


def test_what_belongs_to_no_epoch_does_not_count_as_one() -> None:
    publisher = Recorder()
    committer = Committer(publisher)
    committer.write(["copied"])
    committer.commit(4, [], OFFSETS)
    committer.write(["noted"])
    committer.commit(5, [], OFFSETS)
    assert [call for call in publisher.calls if isinstance(call, tuple) and call[0] == "produce"] == [
        ("produce", "copied"),
        ("produce", "noted"),
    ]


def test_offsets_go_back_only_if_records_were_lost() -> None:
    committer = Committer(Recorder())
    committer.commit(4, [], OFFSETS)
    committer.continue_from({("input", 0): 3})
    committer.commit(5, [], [SourceOffset("input", 0, 3, "{}")])
    with pytest.raises(CommitError, match="Epoch 6: input-0 goes back from offset 3 to 2"):
        committer.commit(6, [], [SourceOffset("input", 0, 2, "{}")])


POINTS = {
    "barrier.before_begin": [],
    "barrier.after_begin": ["begin", "abort"],
    "barrier.mid_produce": ["begin", ("produce", "a"), "abort"],
    "barrier.after_produce": ["begin", ("produce", "a"), ("produce", "b"), "abort"],
    "barrier.after_offsets": ["begin", ("produce", "a"), ("produce", "b"), ("offsets", *OFFSETS), "abort"],
    "barrier.before_commit": ["begin", ("produce", "a"), ("produce", "b"), ("offsets", *OFFSETS), "abort"],
    "barrier.after_commit": ["begin", ("produce", "a"), ("produce", "b"), ("offsets", *OFFSETS), "commit"],
}


def raising(name: str) -> Callable[[str], None]:
    def point(passed: str) -> None:
        if passed == name:
            raise faults.InjectedFaultError(name)

    return point


@pytest.mark.parametrize("name", POINTS)
def test_has_a_fault_point_at_every_phase(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "point", raising(name))
    publisher = Recorder()
    committer = Committer(publisher)
    with pytest.raises(faults.InjectedFaultError):
        committer.commit(0, ["a", "b"], OFFSETS)
    assert publisher.calls == POINTS[name]
    assert committer.phase is Phase.FAILED
