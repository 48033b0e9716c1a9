"""A row whose application was broken for a while: payments that it refused are replayed from dead letters, and count once."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from verification.chaos import checker
from verification.chaos.application import Application, Part
from verification.chaos.checker import Found, Letter, Violation
from verification.chaos.payments import REFUSED_EVERY, Payment
from verification.chaos.trial import Conditions, Trial, World, named
from verification.harness.processes import ROOT, HarnessError

REPLAY_S = 240
FENCED = 20


class Copy(NamedTuple):
    """A replayed payment at its new offset, and the position and key of the letter that it was replayed for."""

    payment: Payment
    place: str
    key: bytes | None


class ReplayTrial(Trial):
    """`CHAOS_BROKEN` is what is broken at first: `payments`, which everything passes, or `totals`, two nodes among others."""

    def __init__(self, world: World, name: str, conditions: Conditions, guard_off: str = "") -> None:
        super().__init__(world, name, conditions, guard_off)
        self.into_nodes = conditions.settings["CHAOS_BROKEN"] == "totals"
        self._fixed_from: Mapping[int, int] | None = None
        to = (str(ROOT / "verification" / "chaos" / "replay.py:app"), "--to", "node") if self.into_nodes else ()
        arguments = ("dlq", "replay", self.topics.dead_letters, *to, "--yes")
        self.replays = [self._replayer(f"replay-{number}", arguments) for number in (1, 2)]

    def _replayer(self, name: str, arguments: tuple[str, ...]) -> Application:
        environment = {
            "CHAOS_APPLICATION_ID": self.topics.application_id,
            "CHAOS_GUARD_OFF": self.guard_off,
            "PENSTOCK_BOOTSTRAP_SERVERS": self.world.broker.proxied_bootstrap_servers,
        }
        command = (sys.executable, "-m", "verification.chaos.replay", *arguments)
        replayer = Application(self.directory / name, environment, command)
        self._stack.callback(replayer.close)
        return replayer

    # ---- the application ----------------------------------------------------------------------------------------------

    def fix(self) -> None:
        """Restart the application without the fault; what it had read before stays refused."""
        if self.application.stop() != 0:
            self.violate("exit", "application", f"{self.application.exits[-1].code} after SIGTERM")
        self._fixed_from = self.observer.offsets()
        self.check_cut()
        self.application.change(CHAOS_BROKEN="")
        self.come_back()

    def letters_written(self) -> int:
        """The number of dead letters."""
        return len(self.observer.dead_letters())

    def _is_refused(self, payment: Payment) -> bool:
        is_before = self._fixed_from is None or payment.offset < self._fixed_from.get(payment.partition, 0)
        return payment.number % REFUSED_EVERY == 0 and is_before

    def sent(self) -> list[Payment]:
        """All payments that count in all parts of the application: those that no part refused, and those replayed."""
        return [*self._accepted(), *(copy.payment for copy in self._copies())]

    def _accepted(self) -> list[Payment]:
        return [payment for payment in super().sent() if not self._is_refused(payment)]

    def _copies(self) -> list[Copy]:
        """The replayed payments in the input; one that was changed matches no payment, and will count as lost."""
        known = {(payment.key, payment.value()): payment for payment in self.load.payments}
        keys = self._letters_by_place()
        found = []
        for (_, partition), reads in self.observer.input().items():
            for read in reads:
                place = (dict(read.headers).get("__penstock.replay.letter") or b"").decode()
                original = known.get(((read.key or b"").decode(), read.value or b"")) if place else None
                if original is not None and original.partition == partition:
                    found.append(Copy(original._replace(offset=read.offset), place, keys.get(place)))
        return found

    def _letters_by_place(self) -> dict[str, bytes | None]:
        """The keys of all letters."""
        return {
            f"{topic}-{partition}-{read.offset}": read.key
            for (topic, partition), reads in self.observer.raw_dead_letters().items()
            for read in reads
        }

    def compared(self, found: Found) -> list[Violation]:
        """See `Trial`; if only totals were broken, all other parts have the payments at their first offsets."""
        if not self.into_nodes:
            return super().compared(found)
        accepted, copies = self._accepted(), self._copies()
        groups = [copy.payment for copy in copies if (copy.key or b"").startswith(b"g")]
        sums = [copy.payment for copy in copies if (copy.key or b"").startswith(b"k")]
        by_kind = dict.fromkeys(("echo", "windows", "ledger"), super().sent())
        return checker.check_each({**by_kind, "sums": [*accepted, *sums], "groups": [*accepted, *groups]}, found)

    def _expected_letters(self) -> list[Letter]:
        refused = [payment for payment in self.load.payments if self._is_refused(payment)]
        letters = [Letter(p.partition, p.offset, p.key.encode(), p.value()) for p in refused]
        if self.into_nodes:
            letters += [Letter(p.partition, p.offset, p.group.encode(), _through_an_exchange(p)) for p in refused]
        return letters

    # ---- the replay ---------------------------------------------------------------------------------------------------

    def replay_killed_at(self, fault: str) -> None:
        """Run a replay that dies at a fault point."""
        replayer = self.replays[0]
        self.wanted += 1
        replayer.start(fault)
        code = self._ended(replayer)
        if code == -signal.SIGKILL and replayer.fired:
            self.fired += 1
            self.kills += 1

    def replay_killed_after(self, seconds: float) -> None:
        """Run a replay that dies this long after its first transaction, unless it has ended by then."""
        replayer = self.replays[0]
        replayer.start()
        deadline = time.monotonic() + REPLAY_S
        while replayer.is_running and b" replayed, " not in replayer.log.read_bytes():
            if time.monotonic() > deadline:
                self.stuck("a replay begins", f"not within {REPLAY_S} s; see {replayer.log}")
            time.sleep(0.005)
        time.sleep(seconds)
        if replayer.kill(Part.DRIVER):
            self.wanted += 1
            self.fired += 1
            self.kills += 1
        self._ended(replayer)

    def replay_twice_at_once(self) -> None:
        """Run two replays at once: one fences the other."""
        for replayer in self.replays:
            replayer.start()
        for replayer in self.replays:
            self._ended(replayer)
        self.happened()

    def replay_all(self) -> None:
        """Run a replay to completion, and a second one that has nothing to do."""
        for _ in range(2):
            self.replays[0].start()
            code = self._ended(self.replays[0])
            if code != 0:
                self.violate("exit", "replay", f"{code}; see {self.replays[0].log}")
        if b"\n0 of " not in b"\n" + self.replays[0].log.read_bytes():
            self.violate("unfinished", "replay", f"the second replay still had letters to replay; see {self.replays[0].log}")

    def check_replays(self) -> None:
        """Check that every letter was replayed once."""
        replayed = [copy.place for copy in self._copies()]
        self.violations += named("", [*checker.check_replays(list(self._letters_by_place()), replayed)])

    def _ended(self, replayer: Application) -> int:
        try:
            code = replayer.wait(REPLAY_S)
        except HarnessError:
            self.stuck("a replay ends", f"not within {REPLAY_S} s; see {replayer.log}")
        if code not in {0, FENCED, -signal.SIGKILL}:
            self.violate("exit", "replay", f"ended on its own with {code}; see {replayer.log}")
        return code


def _through_an_exchange(payment: Payment) -> bytes:
    """A payment's value as the application itself writes it."""
    return json.dumps(json.loads(payment.value()), sort_keys=True, separators=(",", ":")).encode()
