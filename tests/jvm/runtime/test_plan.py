"""A start of an edited topology does what `penstock plan` says, on a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.commands import commands
from penstock.topology.plan import Verdict
from verification.harness import topics
from verification.harness.broker import Broker
from verification.operations.plan_cases import CASES, Case, run_case

pytestmark = pytest.mark.jvm

SAID = {
    "added-branch": {
        "branch": Verdict.NEW,
        "counts": Verdict.KEPT,
        "KSTREAM-REDUCE-STATE-STORE-0000000002": Verdict.LOST,
        "KSTREAM-REDUCE-STATE-STORE-0000000004": Verdict.NEW,
    },
    "renamed-store": {"totals": Verdict.NEW, "counts": Verdict.LOST},
    "renamed-with-content": {"totals": Verdict.RENAMED},
    "changed-window": {"windows": Verdict.REFUSED, "counts": Verdict.KEPT},
    "changed-serde": {"table": Verdict.REFUSED, "counts": Verdict.KEPT},
    "removed-join": {"counts": Verdict.KEPT},
    "migrated-values": {"totals": Verdict.MIGRATED, "counts": Verdict.KEPT},
    "renamed-and-migrated": {"amounts": Verdict.RENAMED, "counts": Verdict.KEPT},
    "version-without-migration": {"totals": Verdict.REFUSED},
    "skipped-version": {"totals": Verdict.REFUSED},
    "changed-key": {"totals": Verdict.REFUSED},
    "changed-retention": {"windows": Verdict.REFUSED},
    "added-field": {"totals": Verdict.KEPT},
    "added-required-field": {"totals": Verdict.REFUSED},
}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_start_does_what_the_plan_says(case: Case, broker: Broker, tmp_path: Path) -> None:
    result = run_case(case, broker.bootstrap_servers, tmp_path)
    assert result.happened == result.said, result.plan
    stores = {change.name: change.verdict for change in result.plan.stores}
    assert SAID[case.name].items() <= stores.items(), stores


def test_before_its_topics_exist_the_plan_says_that_and_nothing_else(broker: Broker, tmp_path: Path) -> None:
    source = tmp_path / "planned_early.py"
    source.write_text(
        "from penstock import App, StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('early-in', value=str).group_by_key().count(store='early-counts').to_stream().to('early-out')\n"
        "app = App('planned-early', builder.build())\n"
    )
    arguments = ["plan", str(source), "--json", "--set", f"bootstrap_servers={broker.bootstrap_servers}"]
    found = CliRunner().invoke(commands, arguments)
    assert found.exit_code == 4, found.output
    [refusal] = json.loads(found.output)["refusals"]
    assert "Topics do not exist: early-in, early-out." in refusal
    created = CliRunner().invoke(commands, [*arguments, "--set", "create_topics=true"])
    plan = json.loads(created.output)
    assert (created.exit_code, plan["refusals"]) == (0, [])
    assert [(place["name"], place["verdict"]) for place in plan["sources"]] == [("early-in", "new")]
    assert not {"early-in", "early-out"} & topics.names(broker.bootstrap_servers)


def test_the_command_prints_a_table_and_has_an_exit_code(broker: Broker, tmp_path: Path) -> None:
    topics.create(broker.bootstrap_servers, "planned-in")
    source = tmp_path / "planned.py"
    source.write_text(
        "from penstock import App, StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('planned-in', value=str, reset='latest').group_by_key().count(store='planned-counts')\n"
        "app = App('planned', builder.build())\n"
    )
    servers = f"bootstrap_servers={broker.bootstrap_servers}"
    found = CliRunner().invoke(commands, ["plan", str(source), "--json", "--set", servers])
    assert found.exit_code == 0, found.output
    plan = json.loads(found.output)
    assert [(store["name"], store["verdict"]) for store in plan["stores"]] == [("planned-counts", "new")]
    assert [(place["name"], place["verdict"]) for place in plan["sources"]] == [("planned-in", "new")]
    assert "starts at its end" in plan["sources"][0]["why"]
    assert not {name for name in topics.names(broker.bootstrap_servers) if name.startswith("planned-planned")}
    missing = CliRunner().invoke(commands, ["plan", str(source), "--set", servers, "--set", "shards=1000000"])
    assert missing.exit_code == 2
