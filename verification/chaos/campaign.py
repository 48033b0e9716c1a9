"""The campaign: all rows on one broker, then each guard turned off, and a report."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

from verification.chaos.rows import Row
from verification.chaos.trial import StuckError, World
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError, ended_by_sigterm, free_port
from verification.harness.toxiproxy import Toxiproxy

SHOWN = 10


@dataclass(frozen=True, slots=True)
class RowReport:
    """The outcome of a row. A fault that should have fired and did not is a violation too."""

    name: str
    wanted: int
    fired: int
    kills: int
    recovered_s: float | None
    """The longest time from a fault, or its end, to new output."""
    violations: int
    details: list[str]
    exits: list[int]
    payments: int
    outputs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GuardReport:
    """The outcome of a row without one of the guards."""

    name: str
    row: str
    went_red: bool
    details: list[str]


@dataclass(slots=True)
class Report:
    """The campaign so far."""

    seed: int
    rows: list[RowReport] = field(default_factory=list)
    guards_off: list[GuardReport] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        """The number of SIGKILLs."""
        return sum(row.kills for row in self.rows)

    @property
    def violations(self) -> int:
        """The number of violations with all guards on."""
        return sum(row.violations for row in self.rows)

    @property
    def is_good(self) -> bool:
        """Whether there is no violation, and every row went red without its guard."""
        return not self.violations and all(guard.went_red for guard in self.guards_off)

    def write(self, path: Path) -> None:
        """Write the report."""
        path.parent.mkdir(parents=True, exist_ok=True)
        summary = {"kills": self.kills, "violations": self.violations, "is_good": self.is_good}
        path.write_text(json.dumps({**summary, **asdict(self)}, indent=2) + "\n")


@contextmanager
def world(seed: int, keep: bool, settings: Mapping[str, str]) -> Iterator[World]:
    """A broker with these settings behind a proxy, and a directory that is removed unless it is to be kept."""
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    with Toxiproxy() as network, Broker(proxied_port=free_port(), settings=settings) as broker:
        assert broker.proxied_port is not None
        yield World(broker, network.proxy(broker.upstream, broker.proxied_port), directory, seed)
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)


def run(
    rows: Sequence[Row],
    guarded_by: Mapping[str, Row],
    seed: int,
    path: Path,
    *,
    keep: bool = False,
    broker_settings: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Run the rows, then the rows of the guards without those guards."""
    report = Report(seed)
    began = time.monotonic()
    with ended_by_sigterm(), world(seed, keep, broker_settings) as where:
        for row in rows:
            report.rows.append(run_row(where, row))
            _say(report.rows[-1])
            report.seconds = time.monotonic() - began
            report.write(path)
        for guard, row in guarded_by.items():
            red = run_row(where, row, guard)
            went_red = red.violations > 0 and red.outputs > 0
            report.guards_off.append(GuardReport(guard, row.name, went_red, red.details))
            print(f"without {guard}: {row.name} {'went red, as it should' if went_red else 'DID NOT GO RED'}", flush=True)
            for detail in red.details:
                print(f"      {detail}", flush=True)
            report.seconds = time.monotonic() - began
            report.write(path)
    return report


def run_row(where: World, row: Row, guard_off: str = "") -> RowReport:
    """Run a row; whatever ends it early is a violation, unless its setup fails."""
    began = time.monotonic()
    with row.trial(where, row.name, row.conditions, guard_off) as trial:
        try:
            row.run(trial)
        except StuckError:
            pass  # already recorded
        except HarnessError as error:
            trial.violate("broken", "row", str(error))
    outputs = sum(map(len, trial.reader.records.values()))
    if not outputs:
        trial.violate("broken", "row", f"the application never produced output; see {trial.application.log}")
    if trial.fired != trial.wanted:
        trial.violate("missed", "row", f"only {trial.fired} of {trial.wanted} faults fired")
    if not trial.violations:
        shutil.rmtree(trial.directory, ignore_errors=True)
    return RowReport(
        name=row.name,
        wanted=trial.wanted,
        fired=trial.fired,
        kills=trial.kills,
        recovered_s=round(max(trial.recoveries), 1) if trial.recoveries else None,
        violations=len(trial.violations),
        details=[str(violation) for violation in trial.violations[:SHOWN]],
        exits=[ended.code for ended in trial.application.exits],
        payments=len(trial.sent()),
        outputs=outputs,
        seconds=round(time.monotonic() - began, 1),
    )


def _say(row: RowReport) -> None:
    verdict = "ok " if not row.violations else "RED"
    recovered = "" if row.recovered_s is None else f", recovered in at most {row.recovered_s:.1f} s"
    print(
        f"{verdict} {row.name}: {row.fired} of {row.wanted} fired{recovered}, {row.payments} payments, {row.seconds:.0f} s",
        flush=True,
    )
    for detail in row.details:
        print(f"      {detail}", flush=True)
