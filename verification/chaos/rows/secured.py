"""A broker that requires TLS and a password: everything holds there too, and nothing reveals the password."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from verification.chaos.application import Application, Part
from verification.chaos.rows.instances import second_instance
from verification.chaos.rows.kills import WAYS
from verification.chaos.rows.outside import GETS_OVER_OR_SAYS_SO, connection_cut
from verification.chaos.rows.row import Row
from verification.chaos.trial import Conditions, Trial, World
from verification.harness.canaries import canaries_in
from verification.harness.processes import free_port
from verification.harness.secure import SecureBroker
from verification.harness.toxiproxy import Toxiproxy

if TYPE_CHECKING:
    from typing_extensions import Self

KILLS = 6
PASSWORD_VARIABLE = "CHAOS_PASSWORD"  # noqa: S105 - the name of the variable, not the password


class SecuredTrial(Trial):
    """A trial with its own broker, which the application reaches over SASL_SSL and a proxy."""

    def __init__(self, world: World, name: str, conditions: Conditions, guard_off: str = "") -> None:
        self._network = Toxiproxy()
        self._broker = SecureBroker(proxied_port=free_port())
        super().__init__(replace(world, broker=self._broker), name, conditions, guard_off)

    def instance(self, name: str, **settings: str) -> Application:
        """An instance of the application that is configured with a reference to the password."""
        login = {**self._broker.login, "sasl.password": f"env:{PASSWORD_VARIABLE}"}
        instance = super().instance(name, **{PASSWORD_VARIABLE: self._broker.password, **settings})
        lines = (f'"{setting}" = "{value}"' for setting, value in login.items())
        (instance.directory / "penstock.toml").write_text("\n".join(["[kafka]", *lines]))
        return instance

    def __enter__(self) -> Self:
        self._stack.enter_context(self._network)
        self._stack.enter_context(self._broker)
        assert self._broker.proxied_port is not None
        proxy = self._network.proxy(self._broker.upstream, self._broker.proxied_port)
        self.world = replace(self.world, proxy=proxy)
        super().__enter__()
        return self

    def finish(self) -> None:
        """See `Trial`; also check that no log and no file contains the password."""
        super().finish()
        for found in canaries_in({"the password": self._broker.password}, self.directory):
            self.violate("shown", "application", found)


def some_of_each(trial: SecuredTrial) -> None:
    """Kill right before an epoch's job, and at random moments; then cut the connection to the broker for a while."""
    chooser = random.Random(trial.world.seed)
    trial.kill_at(f"epoch.before_job:{chooser.randrange(3, 16)}:kill")
    for number in range(KILLS):
        trial.come_back(**WAYS[number % len(WAYS)])
        time.sleep(chooser.uniform(0, 2))
        trial.kill((Part.JVM, Part.ALL, Part.DRIVER)[number % 3])
        trial.check_cut()
    connection_cut(5)(trial)


ROWS = (
    Row("secured", some_of_each, GETS_OVER_OR_SAYS_SO, trial=SecuredTrial),
    Row("secured-second-instance", partial(second_instance, False), trial=SecuredTrial),
)
