"""Kills while outputs are delivered to PostgreSQL and to files: both have everything that is committed, exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq

from verification.chaos.application import Application, Part
from verification.chaos.rows.kills import LOCAL_ENGINE, WAYS
from verification.chaos.rows.row import FULL, LOCAL, QUICK, Row
from verification.chaos.trial import REST_S, Conditions, Trial, World
from verification.harness.postgres import Postgres
from verification.harness.processes import HarnessError, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

KILLS, QUICK_KILLS = 30, 5
POINTS = ("delivery.before_write", "delivery.after_write")
TABLES = (
    'CREATE TABLE payments (number integer, step integer, "group" text, amount integer)',
    "CREATE TABLE sums (id text PRIMARY KEY, count integer, sum integer, number integer)",
)


class DeliveryTrial(Trial):
    """An application that delivers each payment and the sums to a database of its own, and the groups to files."""

    def __init__(self, world: World, name: str, conditions: Conditions, guard_off: str = "") -> None:
        self.database = Postgres()
        super().__init__(world, name, conditions, guard_off)

    def instance(self, name: str, **settings: str) -> Application:
        """An instance of the application."""
        delivered = {"CHAOS_DATABASE": self.database.dsn, "CHAOS_FILES": str(self.lake)}
        return super().instance(name, **delivered, **settings)

    @property
    def lake(self) -> Path:
        """The directory of the files."""
        return self.directory / "lake"

    def __enter__(self) -> Self:
        self._stack.enter_context(self.database)
        with self.connection() as connection:
            for table in TABLES:
                connection.execute(table)
        super().__enter__()
        return self

    def connection(self) -> psycopg.Connection[Any]:
        """A connection to the database."""
        return psycopg.connect(self.database.dsn, autocommit=True)

    def rest(self) -> None:
        """See `Trial`; also wait until as much is delivered as was sent."""
        super().rest()
        ends = {topic: self.committed(topic) for topic in (self.topics.echo, self.topics.sums, self.topics.groups)}
        try:
            wait_until("everything is delivered", lambda: self.delivered() >= Counter(ends), REST_S)
        except HarnessError as error:
            self.violate("lost", "deliveries", f"{error}: {self.delivered()} of {ends}")

    def committed(self, topic: str) -> int:
        """How many records of a topic are committed."""
        return sum(len(records) for (name, _), records in self.reader.records.items() if name == topic)

    def delivered(self) -> Counter[str]:
        """How many records of each topic are delivered; of the sums, those that the table has."""
        with self.connection() as connection:
            rows = connection.execute("SELECT count(*), (SELECT coalesce(sum(count), 0) FROM sums) FROM payments").fetchone()
        assert rows is not None
        return Counter({self.topics.echo: rows[0], self.topics.sums: int(rows[1]), self.topics.groups: len(self.lines())})

    def lines(self) -> list[dict[str, Any]]:
        """The rows of all files."""
        return [row for path in sorted(self.lake.glob("[0-9]*.parquet")) for row in pq.read_table(path).to_pylist()]

    def check_all(self, when: str) -> None:
        """See `Trial`; also compare what was delivered with the topics."""
        super().check_all(when)
        found = self.observer.found()
        with self.connection() as connection:
            payments = connection.execute('SELECT number, step, "group", amount FROM payments').fetchall()
            sums = connection.execute("SELECT id, count, sum, number FROM sums").fetchall()
        echo = [tuple(output.value[name] for name in ("number", "step", "group", "amount")) for output in found.outputs["echo"]]
        self._compare(f"payments{when}", Counter(payments), Counter(echo))
        totals = [(key, total["count"], total["sum"], total["number"]) for key, total in found.tables["sums"].items()]
        self._compare(f"sums{when}", Counter(sums), Counter(totals))
        lines = [(row["_partition"], row["_offset"], row["_key"], row["count"], row["sum"]) for row in self.lines()]
        groups = [
            (each.partition, each.offset, each.key, each.value["count"], each.value["sum"]) for each in found.outputs["groups"]
        ]
        self._compare(f"files{when}", Counter(lines), Counter(groups))

    def _compare(self, where: str, found: Counter[Any], expected: Counter[Any]) -> None:
        if found != expected:
            more, less = (found - expected).most_common(2), (expected - found).most_common(2)
            self.violate(
                "delivered", where, f"{found.total()} rows instead of {expected.total()}; too many: {more}, missing: {less}"
            )


def while_delivering(kills: int, trial: DeliveryTrial) -> None:
    """Kill around writes to a target and at random moments; every fifth time the database is killed instead."""
    chooser = random.Random(f"{trial.world.seed} {trial.name}")
    for number in range(kills):
        way = chooser.choice(WAYS[:2])
        if number % 5 == 4:
            trial.come_back(**way)
            trial.database.kill()
            time.sleep(chooser.uniform(0, 2))
            trial.database.start()
            trial.happened()
            trial.kills += 1
            trial.kill(Part.ALL)
        elif number % 5 < len(POINTS):
            trial.kill_at(f"{POINTS[number % 5]}:{chooser.randrange(1, 30)}:kill", **way)
        else:
            trial.come_back(**way)
            time.sleep(chooser.uniform(0, 1))
            trial.kill(chooser.choice((Part.DRIVER, Part.ALL)))
    trial.finish()


ROWS = (
    Row("deliveries", partial(while_delivering, KILLS), LOCAL_ENGINE, campaigns=(FULL, LOCAL), trial=DeliveryTrial),
    Row("some-deliveries", partial(while_delivering, QUICK_KILLS), LOCAL_ENGINE, campaigns=(QUICK,), trial=DeliveryTrial),
)
