"""What an exactly-once run leaves on the broker: results committed in a transaction, no record lost or counted twice."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from verification.harness import topics
from verification.harness.processes import HarnessError, wait_until

COMMITTED = "CompleteCommit"
_SETTLED_S = 30
_ROW = re.compile(r"^│ (\S+) +│ (.+?) +│$", re.MULTILINE)


def store_shown(output: str, store: str) -> dict[str, Any]:
    """Return the rows of a store that `penstock try` prints, by key."""
    _, found, behind = output.partition(f"\nstore {store}\n")
    rows = {key: json.loads(value) for key, value in _ROW.findall(behind.partition("└")[0])}
    if not found or not rows:
        raise HarnessError(f"the output shows no rows of the store {store}:\n{output}")
    return rows


def problem_on_broker(servers: str, application: str, topic: str, wanted: Mapping[str, Any]) -> str | None:
    """Return why the topic does not have exactly these last values by key, committed in a transaction; None if it does."""

    def is_committed() -> bool:
        return any(name.startswith(application) and state == COMMITTED for name, state in topics.transactions(servers).items())

    try:
        wait_until(f"a transaction of {application} is committed", is_committed, _SETTLED_S, every_s=1.0)
    except HarnessError as error:
        return f"is no exactly-once run: {error}"
    records = topics.read(servers, topic)
    found = {(record.key or b"").decode(): json.loads(record.value or b"null") for record in records}
    return None if found == wanted else f"the topic {topic} has {found}, but without a broker the result is {dict(wanted)}"
