"""`python -m verification.registry`: all cases, the comparison with Java, and the throughput; writes reports/registry.json."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.serdes.registry.registry import Registry, RemoteSource
from penstock.serdes.registry.settings import RegistrySettings
from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.secure import Authority
from verification.registry.apicurio import Apicurio
from verification.registry.application import ApplicationCases
from verification.registry.cases import Cases
from verification.registry.peer import Peer, compared
from verification.registry.throughput import compared as throughput

REPORT = Path("reports/registry.json")
GOAL = 0.5


def main() -> int:
    """Run everything; return 1 if something fails, or Avro is slower than it may be."""
    parser = argparse.ArgumentParser(prog="python -m verification.registry")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="registry-") as directory:
        authority = Authority(Path(directory))
        own = authority.issue("registry")
        with Apicurio(own.certificate, own.key) as server, Broker(settings=NEVER_KILLED) as broker:
            report = _report(server, broker, authority.certificate, options)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{report['cases']} cases, {len(report['failures'])} failures; Avro at {report['ratio_to_json']} of JSON (goal {GOAL})")
    return 1 if report["failures"] or report["ratio_to_json"] < GOAL else 0


def _report(server: Apicurio, broker: Broker, authority: Path, options: argparse.Namespace) -> dict[str, Any]:
    registry = Registry(RemoteSource(RegistrySettings.of({"url": server.url, "request.timeout.ms": "20000"})))
    cases = {**Cases(server, authority).all(), **ApplicationCases(broker, server).all()}
    results = [*_own_cases(cases), *compared(registry, Peer(server.own_url), options.seed)]
    failures = [f"{name}: {wrong}" for name, wrong in results if wrong is not None]
    for failure in failures:
        print(failure)
    return {"cases": len(results), "failures": failures, **throughput(registry, options.records, options.rounds)}


def _own_cases(cases: Mapping[str, Callable[[], None]]) -> Iterator[tuple[str, str | None]]:
    for name, run in cases.items():
        try:
            run()
        except (AssertionError, PenstockError):
            yield name, traceback.format_exc()
        else:
            print(f"holds: {name.replace('_', ' ')}", flush=True)
            yield name, None


if __name__ == "__main__":
    sys.exit(main())
