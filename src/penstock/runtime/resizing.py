"""`Resizable`: the part of a running application by which the number of its lanes is changed.

The application commits what has begun, ends its lanes, and starts again within the same process. It serves its admin server and
its probes meanwhile.
"""

from __future__ import annotations

from penstock.config import Config
from penstock.epochs.program import Program
from penstock.errors import ConfigError


class Resizable:
    """An application that may use another number of lanes."""

    config: Config

    def __init__(self, *, is_bounded: bool) -> None:
        self._is_bounded = is_bounded
        self._program: Program | None = None
        self._wanted_lanes: int | None = None

    @property
    def lanes(self) -> int | None:
        """The number of lanes, the last one while it starts again; None before the first start is complete."""
        return None if self._program is None else self._program.lanes

    @property
    def shards(self) -> int | None:
        """The number of shards, which is the most lanes that are possible; None before the first start is complete."""
        return None if self._program is None else self._program.shards

    @property
    def _other_lanes(self) -> int | None:
        """The number of lanes that was requested last, unless it is the current one."""
        return None if self._wanted_lanes == self.lanes else self._wanted_lanes

    def change_lanes(self, lanes: int) -> None:
        """Use another number of lanes from the next epoch on, without waiting; results do not depend on it.

        The last call decides: one with the current number withdraws a change that has not begun.

        The application is `rebalancing` while it ends its lanes and restores others from the same files. A restart of the process
        uses the number of its settings again.

        Example:
            >>> running.change_lanes(8)  # doctest: +SKIP
            >>> running.wait_until_running(60)  # doctest: +SKIP
            True
        """
        if self.config.standby:
            raise ConfigError(
                "lanes: an instance that has standbys does not change its lanes, because one of them would take over. Start a "
                "standby with other lanes, then end this instance."
            )
        if self._is_bounded:
            raise ConfigError("lanes: a run that ends at a bound keeps its lanes. Set lanes for the next start.")
        if self.shards is None or not 1 <= lanes <= self.shards:
            most = "its shards, which are known when it runs" if self.shards is None else f"its {self.shards} shards"
            raise ConfigError(f"lanes: {lanes} is not possible. Set 1 or more, and at most as many as {most}.")
        self._wanted_lanes = lanes
