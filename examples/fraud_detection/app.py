"""Card fraud: too many payments, or too much money, within ten minutes of a card's first payment.

The payment that breaks a rule raises an alert. When the ten minutes are over, a timer closes the case, with all that was paid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock import (
    App,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Timer,
    bounded_disorder,
    dead_letter,
    key_value_store,
)

SPAN_MS = 10 * 60 * 1000
MOST_PAYMENTS = 3
MOST_CENTS = 100_000


@dataclass(frozen=True)
class Payment:
    merchant: str
    cents: int


@dataclass(frozen=True)
class Alert:
    rule: str
    payments: int
    cents: int


@dataclass(frozen=True)
class Case:
    rules: list[str]
    payments: int
    cents: int


@dataclass(frozen=True)
class Span:
    """What was paid with a card since the first payment of its ten minutes, and the rules that this has broken."""

    since: int
    payments: int
    cents: int
    rules: list[str]

    @property
    def end(self) -> int:
        return self.since + SPAN_MS

    def broken(self) -> list[str]:
        """All rules that are broken now."""
        rules = {"payments": self.payments > MOST_PAYMENTS, "amount": self.cents > MOST_CENTS}
        return [rule for rule, is_broken in rules.items() if is_broken]


class Watch(Processor[str, Payment, str, Alert]):
    def init(self, context: ProcessorContext[str, Alert]) -> None:
        super().init(context)
        self.spans = context.store("spans")

    def process(self, record: Record[str, Payment]) -> None:
        span: Span | None = self.spans.get(record.key)
        # Timers fire between epochs, and this payment may be in the same epoch as the span's last: so compare the times, too.
        if span is not None and record.timestamp >= span.end:
            self.settle(record.key, span)
            span = None
        if span is None:
            span = Span(record.timestamp, 0, 0, [])
            self.context.timers.event_time(at=span.end)
        span = replace(span, payments=span.payments + 1, cents=span.cents + record.value.cents)
        for rule in span.broken():
            if rule not in span.rules:
                span = replace(span, rules=[*span.rules, rule])
                self.context.forward(record.with_value(Alert(rule, span.payments, span.cents)))
        self.spans[record.key] = span

    def on_timer(self, timer: Timer) -> None:
        self.settle(timer.key, self.spans[timer.key])

    def settle(self, card: str, span: Span) -> None:
        """Forget the span; if it broke a rule, close the case."""
        self.spans.delete(card)
        if span.rules:
            self.context.side_output("cases", Record(card, Case(span.rules, span.payments, span.cents), span.end))


builder = StreamsBuilder()
builder.add_state_store(key_value_store("spans", value=Span))
payments = builder.stream(
    "payments",
    key=str,
    value=Payment,
    watermark=bounded_disorder("5s", idle="30s", follow_wall_clock=True),
    late=dead_letter("payments-late"),
)
alerts = payments.process(Watch, stores=["spans"], key=str, value=Alert, name="watch")
alerts.to("fraud-alerts")
alerts.side_output("cases", value=Case).to("fraud-cases")
app = App("fraud-detection", builder.build())

if __name__ == "__main__":
    app.run()
