"""Labels, repeated and failed calls, the pace of the calls: without a broker, with a fake client or a fake service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.llm_enrichment import app as application
from examples.llm_enrichment.app import LabelledTicket, Labels, Pace, Ticket, app, open_model
from examples.llm_enrichment.fake_service import FakeService
from examples.samples import pipe, samples
from penstock.testing import FakeAsync, TopologyTestDriver

DATA = Path(__file__).parent / "data"


def driver_with(ask: Callable[..., object]) -> TopologyTestDriver:
    return TopologyTestDriver(app.topology, processing_errors=app.processing_errors, fakes={open_model: lambda: ask})


def use(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_URL", service.url)
    monkeypatch.setattr(application, "CALLS_PER_SECOND", 1000)  # connections are real, so waiting for a turn takes real time


def test_a_ticket_gets_the_subject_that_the_model_finds() -> None:
    with driver_with(FakeAsync(Labels("billing", is_urgent=False))) as driver:
        driver.input("tickets").pipe(Ticket("ann", "the invoice"), key="t")
        assert driver.output("tickets-labelled").pairs() == [("t", LabelledTicket("ann", "the invoice", "billing"))]


def test_urgent_and_unclear_tickets_go_elsewhere() -> None:
    answers = {"now": Labels("login", is_urgent=True), "what": Labels(None, is_urgent=True)}
    with driver_with(FakeAsync(lambda text: answers[text])) as driver:
        driver.input("tickets").pipe(Ticket("ann", "now"), key="t-1")
        driver.input("tickets").pipe(Ticket("bob", "what"), key="t-2")
        assert driver.output("tickets-urgent").pairs() == [("t-1", LabelledTicket("ann", "now", "urgent login"))]
        assert driver.output("tickets-unclear").pairs() == [("t-2", Ticket("bob", "what"))]
        assert driver.output("tickets-labelled").is_empty


def test_a_text_is_asked_about_once() -> None:
    ask = FakeAsync(Labels("billing", is_urgent=False))
    with driver_with(ask) as driver:
        for ticket in ("t-1", "t-2"):
            driver.input("tickets").pipe(Ticket("ann", "the invoice"), key=ticket)
        assert ask.calls == [("the invoice",)]
        assert len(driver.output("tickets-labelled").values()) == 2


def test_three_retries_then_a_dead_letter() -> None:
    busy: list[Exception | None] = [ConnectionError("busy")] * 7
    ask = FakeAsync(Labels("billing", is_urgent=False), error=busy)
    with driver_with(ask) as driver:
        driver.input("tickets").pipe(Ticket("ann", "one"), key="t-1")
        driver.input("tickets").pipe(Ticket("ann", "two"), key="t-2")
        assert [letter.key for letter in driver.output("tickets-failed").records()] == [b"t-1"]
        assert [ticket.text for ticket in driver.output("tickets-labelled").values()] == ["two"]
        assert ask.calls == [("one",)] * 4 + [("two",)] * 4


def test_the_dead_letter_says_what_the_service_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeService(failing=4) as service:
        use(service, monkeypatch)
        with TopologyTestDriver(app.topology, processing_errors=app.processing_errors) as driver:
            driver.input("tickets").pipe(Ticket("ann", "the invoice"), key="t")
            headers = dict(driver.output("tickets-failed").read().headers)
            assert (headers["__streams.errors.message"] or b"").startswith(b"503")


def test_turns_are_as_far_apart_as_the_limit_says() -> None:
    async def turns(pace: Pace, count: int) -> None:
        await asyncio.gather(*(pace.turn() for _ in range(count)))

    begun = time.monotonic()
    asyncio.run(turns(Pace(per_second=100), 11))
    assert time.monotonic() - begun >= 0.099


def test_the_sample_data_and_a_service_that_fails_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeService(limit=1000, failing=1) as service:
        use(service, monkeypatch)
        with TopologyTestDriver(app.topology, processing_errors=app.processing_errors) as driver:
            pipe(driver, samples(DATA))
            labelled = driver.output("tickets-labelled", key=str, value=LabelledTicket).table()
            assert {key: ticket.subject for key, ticket in labelled.items()} == {
                "t-01": "billing",
                "t-02": "delivery",
                "t-05": "delivery",
                "t-06": "billing",
                "t-08": "login",
                "t-09": "delivery",
                "t-10": "billing",
                "t-11": "login",
                "t-12": "delivery",
            }
            assert set(driver.output("tickets-urgent").table()) == {"t-03", "t-07"}
            assert set(driver.output("tickets-unclear").table()) == {"t-04", "t-13"}
            assert driver.output("tickets-failed").is_empty
    assert len(service.texts) == 1 + 12  # the failed call, and one for each text
