"""`python -m chaos.replay dlq replay …`: the replay of dead letters under test, in small transactions: it can die at many points.

The file also has the application, for `--to node`.
"""

from __future__ import annotations

import os

from chaos import guards
from chaos.topology import app as application
from penstock.cli.commands import commands
from penstock.kafka import dead_letters

LETTERS_PER_TRANSACTION = 5

app = application(os.environ["CHAOS_APPLICATION_ID"], "dead_letter")


def main() -> None:
    """Run the command."""
    guards.turn_off(os.environ.get(guards.VARIABLE, ""))
    dead_letters.LETTERS_PER_TRANSACTION = LETTERS_PER_TRANSACTION
    commands()


if __name__ == "__main__":
    main()
