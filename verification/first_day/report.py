"""The figures of a first day, and the goals that they must meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from verification.first_day.commands import to_exactly_once, to_first_output
from verification.first_day.mistakes import Answered
from verification.first_day.outcome import Record

MOST_COMMANDS_TO_FIRST_OUTPUT = 3
MOST_SECONDS_TO_FIRST_OUTPUT = 120
MOST_COMMANDS_TO_EXACTLY_ONCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What is checked beside the pages; None is what was left out."""

    undocumented: Sequence[str]
    mistakes: Answered | None = None
    dead_links: Sequence[str] | None = None


def report(records: Sequence[Record], checks: Checks) -> dict[str, Any]:
    """Return what is written as JSON. The first record is that of the page with the quick start."""
    commands = records[0].page.commands()
    first_output, exactly_once = commands[to_first_output(commands)], commands[to_exactly_once(commands)]
    found: dict[str, Any] = {
        "commands_to_first_output": len(first_output),
        "seconds": records[0].seconds_of(first_output),
        "commands_to_exactly_once": len(exactly_once),
        "seconds_to_exactly_once": records[0].seconds_of(exactly_once),
        "code_blocks": sum(len(record.page.blocks) for record in records),
        "failed": sum(record.failed_blocks for record in records),
    }
    problems = [str(problem) for record in records for problem in record.problems]
    if checks.mistakes is not None:
        found["mistakes"] = {"right": checks.mistakes.right, "of": checks.mistakes.of}
        problems += [f"mistake without its answer: {row}" for row in checks.mistakes.wrong]
    if checks.dead_links is not None:
        found["dead_links"] = len(checks.dead_links)
        problems += checks.dead_links
    found["undocumented_names"] = len(checks.undocumented)
    problems += checks.undocumented
    timings = [asdict(timing) for record in records for timing in record.timings]
    return {**found, "missed": missed(found), "problems": problems, "commands": timings}


def missed(figures: dict[str, Any]) -> list[str]:
    """Return the goals that the figures do not meet."""
    most = {
        "commands_to_first_output": MOST_COMMANDS_TO_FIRST_OUTPUT,
        "seconds": MOST_SECONDS_TO_FIRST_OUTPUT,
        "commands_to_exactly_once": MOST_COMMANDS_TO_EXACTLY_ONCE,
        "failed": 0,
        "dead_links": 0,
        "undocumented_names": 0,
    }
    goals = [f"{name} is {figures[name]}, at most {limit}" for name, limit in most.items() if figures.get(name, 0) > limit]
    if not figures["code_blocks"]:
        goals.append("the pages have no code blocks")
    mistakes = figures.get("mistakes")
    if mistakes is not None and (mistakes["right"] != mistakes["of"] or not mistakes["of"]):
        goals.append(f"mistakes: {mistakes['right']} of {mistakes['of']} right")
    return goals
