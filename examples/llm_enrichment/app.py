"""Support tickets, labelled by a language model behind an HTTP service that allows few calls a second.

Calls overlap, are retried, and wait for their turn. A ticket that the model cannot label goes to people, one that no call could
be made for to a dead-letter topic.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec

from penstock import App, CircuitBreaker, ResultCache, SideOutput, StreamsBuilder, dead_letter, otherwise

CALLS_PER_SECOND = 5
"""Of a process: with `lanes = 1` in penstock.toml, of the application."""


@dataclass(frozen=True)
class Ticket:
    customer: str
    text: str


@dataclass(frozen=True)
class Labels:
    """What the service answers; it may not know the subject."""

    subject: str | None
    is_urgent: bool


@dataclass(frozen=True)
class LabelledTicket:
    customer: str
    text: str
    subject: str


class Pace:
    """Gives out turns, evenly: so many a second."""

    def __init__(self, per_second: float) -> None:
        self._gap_s = 1 / per_second
        self._next = 0.0

    async def turn(self) -> None:
        now = asyncio.get_running_loop().time()
        mine = max(now, self._next)
        self._next = mine + self._gap_s
        await asyncio.sleep(mine - now)


Ask = Callable[[str], Awaitable[Labels]]


@asynccontextmanager
async def open_model() -> AsyncIterator[Ask]:
    """The client of a process. A retry waits for a turn like any other call."""
    pace = Pace(CALLS_PER_SECOND)
    async with aiohttp.ClientSession(os.environ.get("MODEL_URL", "http://localhost:8900")) as session:

        async def ask(text: str) -> Labels:
            await pace.turn()
            async with session.post("/label", json={"text": text}) as answer:
                answer.raise_for_status()
                return msgspec.json.decode(await answer.read(), type=Labels)

        yield ask


async def label(ticket: Ticket, ask: Ask) -> LabelledTicket | SideOutput:
    labels = await ask(ticket.text)
    if labels.subject is None:
        return SideOutput("unclear", ticket)
    subject = f"urgent {labels.subject}" if labels.is_urgent else labels.subject
    return LabelledTicket(ticket.customer, ticket.text, subject)


builder = StreamsBuilder()
labelled = builder.stream("tickets", key=str, value=Ticket).map_values_async(
    label,
    setup=open_model,
    concurrency=8,
    timeout="10s",
    retries=3,
    backoff="200ms",
    breaker=CircuitBreaker(failures=20, pause="30s"),
    cache=ResultCache("1h", by=lambda _, ticket: ticket.text),
    value=LabelledTicket,
    name="label",
)
urgent, usual = labelled.split(lambda _, ticket: ticket.subject.startswith("urgent "), otherwise)
urgent.to("tickets-urgent")
usual.to("tickets-labelled")
labelled.side_output("unclear", value=Ticket).to("tickets-unclear")
app = App("llm-enrichment", builder.build(), processing_errors=dead_letter("tickets-failed"))

if __name__ == "__main__":
    app.run()
