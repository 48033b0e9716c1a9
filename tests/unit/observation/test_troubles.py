"""What the dashboard shows of the log: the last warnings and errors, without secrets, while its server runs."""

from __future__ import annotations

import logging

from penstock.observation.redaction import Redactor
from penstock.observation.troubles import kept_troubles

LOG = logging.getLogger("penstock.lanes.failures")


def test_the_last_warnings_and_errors_are_kept_newest_first() -> None:
    with kept_troubles(Redactor(["hunter2"])) as last:
        assert last() == ()
        LOG.info("nothing to see")
        LOG.warning("refused %s", "hunter2")
        LOG.error("failed on %s", "x" * 1_000)
        found = last()
        assert [(one.level, one.what[:12]) for one in found] == [("error", "failed on xx"), ("warning", "refused [hid")]
        assert len(found[0].what) == 500
        for number in range(30):
            LOG.warning("number %d", number)
        assert [one.what for one in last()][:2] == ["number 29", "number 28"]
        assert len(last()) == 20


def test_a_wrong_format_harms_nobody() -> None:
    with kept_troubles(Redactor()) as last:
        [keeping] = [each for each in logging.getLogger("penstock").handlers if each.level == logging.WARNING]
        keeping.handle(logging.LogRecord(LOG.name, logging.WARNING, "", 0, "%d records", ("three",), None))
        assert [one.what for one in last()] == ["a message of penstock.lanes.failures that cannot be formatted"]


def test_nothing_is_kept_afterwards() -> None:
    before = list(logging.getLogger("penstock").handlers)
    with kept_troubles(Redactor()) as last:
        pass
    LOG.warning("too late")
    assert last() == ()
    assert logging.getLogger("penstock").handlers == before
