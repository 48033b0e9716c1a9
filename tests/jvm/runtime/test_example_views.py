"""The SQL of the example `cdc_views`, on Spark: the queries of its README, for its sample data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.cdc_views.app import Revenue
from examples.samples import produce
from verification.examples.cases import CASES
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm

START_S = 120


def test_the_readmes_queries(broker: Broker, tmp_path: Path) -> None:
    [case] = [case for case in CASES if case.name == "cdc_views"]
    servers = broker.bootstrap_servers
    for topic in case.inputs() | case.outputs():
        topics.create(servers, topic, partitions=2)
    produce(servers, case.records())
    readme = (case.directory / "README.md").read_text(encoding="utf-8")
    by_country, by_customer = re.findall(r"```sql\n(.*?)```", readme, re.DOTALL)
    with case.app.start(bootstrap_servers=servers, state_dir=tmp_path, lanes=2, admin_address="off") as running:
        assert running.wait_until_running(START_S)
        revenue = running.store("revenue_by_country")
        wait_until("all changes to be read", lambda: revenue.get("NO") == Revenue(2, 5650), START_S)
        assert [tuple(row) for row in running.sql(by_country).collect()] == [("NO", 2, 56.5), ("CH", 1, 9.0)]
        assert [tuple(row) for row in running.sql(by_customer).collect()] == [("Ann", 1, 5000), ("Cem", 1, 900), ("Bob", 1, 650)]
