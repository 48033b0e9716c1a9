"""`python -m verification.chaos.replay dlq replay …`: replays dead letters in small transactions, to die between them.

The file also has the application, for `--to node`.
"""

from __future__ import annotations

import os

from penstock.cli.commands import commands
from penstock.kafka import dead_letters
from verification.chaos import guards
from verification.chaos.topology import app as application

LETTERS_PER_TRANSACTION = 5

app = application(os.environ["CHAOS_APPLICATION_ID"], "dead_letter")


def main() -> None:
    """Run the command."""
    guards.turn_off(os.environ.get(guards.VARIABLE, ""))
    dead_letters.LETTERS_PER_TRANSACTION = LETTERS_PER_TRANSACTION
    commands()


if __name__ == "__main__":
    main()
