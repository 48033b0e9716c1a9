"""What does not run on a cluster yet, refused by name."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.epochs.program import Program
from penstock.errors import ConfigError


def refuse_unsupported(program: Program) -> None:
    """Refuse a topology that needs what only one machine has: files that all lanes see."""
    if not program.is_spread:
        return
    found = {
        "global tables": bool(program.global_stores),
        "shared stores": program.orders_writes,
        "atomic sections": any(stage.is_serial for stage in program.plan.stages),
    }
    names = [name for name, is_used in found.items() if is_used]
    if names:
        raise ConfigError(f"{' and '.join(names).capitalize()} do not work on a cluster yet. Use a local master.")


def refuse_migration(program: Program, stores: Sequence[str]) -> None:
    """Refuse to convert stores: the driver does it, which has no lanes."""
    if program.is_spread:
        cure = "Start the application once with a local master, and then on the cluster."
        raise ConfigError(f"Stores cannot be migrated on a cluster yet: {', '.join(stores)}. {cure}")
