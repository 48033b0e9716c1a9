"""Prints the result of `penstock plan`, and determines its exit code."""

from __future__ import annotations

from penstock.cli.screen import output_console, print_json, shown, table, verdict
from penstock.errors import IncompatibleTopologyError
from penstock.topology.plan import Changes, Decision

LOST = 5
"""The exit code if a store would be left behind; a refused start has the exit code of its error."""


def print_plan(application_id: str, changes: Changes, as_json: bool) -> int:
    """Print what would happen, and return the exit code."""
    if as_json:
        print_json(_document(application_id, changes))
    else:
        console = output_console()
        console.print(_table("store", changes.stores))
        console.print(_table("source", changes.sources))
        for refusal in changes.refusals:
            console.print(shown(f"refused: {refusal}", style="red"))
        console.print(shown(_summary(application_id, changes)))
    if changes.is_refused:
        return IncompatibleTopologyError.exit_code
    return LOST if changes.loses_state else 0


def _table(what: str, changes: tuple[Decision, ...]) -> object:
    return table((what, "verdict", "why"), [(change.name, verdict(change.verdict.value), change.why) for change in changes])


def _summary(application_id: str, changes: Changes) -> str:
    if changes.is_refused:
        return f"A start of {application_id!r} would be refused and change nothing."
    lost = [change.name for change in changes.stores if change.verdict.value == "lost"]
    if lost:
        return f"A start of {application_id!r} would leave behind: {', '.join(lost)}."
    return f"A start of {application_id!r} would lose nothing."


def _document(application_id: str, changes: Changes) -> dict[str, object]:
    def rows(found: tuple[Decision, ...]) -> list[dict[str, str]]:
        return [{"name": change.name, "verdict": change.verdict.value, "why": change.why} for change in found]

    return {
        "application_id": application_id,
        "stores": rows(changes.stores),
        "sources": rows(changes.sources),
        "refusals": list(changes.refusals),
        "is_refused": changes.is_refused,
        "loses_state": changes.loses_state,
    }
