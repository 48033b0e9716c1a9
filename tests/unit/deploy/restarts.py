"""After which errors a supervisor starts an application again."""

from __future__ import annotations

import re

from penstock.errors import PenstockError
from tests.unit.deploy.files import DEPLOY


def is_restarted_after(error: PenstockError) -> bool:
    """Whether the unit of systemd starts an application again that has ended with an error."""
    unit = (DEPLOY / "systemd" / "penstock@.service").read_text()
    found = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert found is not None
    return str(error.exit_code) not in found[1].split()
