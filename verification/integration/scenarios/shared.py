"""Shared stores: read and written by lanes that do not own the key, and by atomic sections that hold all lanes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from random import Random

from penstock import Processor, ProcessorContext, Record, SharedKeyValueStore, Store, StreamsBuilder, Topology, shared_store
from verification.integration.inputs import EVERYWHERE, any_key, fed, moments, one_phase
from verification.integration.scenario import Fed, Output, Phase, Scenario, Setup


def _remember(current: list[str] | None, buyer: str) -> list[str]:
    """The last three buyers, which show the order of writes."""
    return [*(current or []), buyer][-3:]


def _sell_out(current: list[str] | None, _: object) -> None:
    """Delete the value."""


class _Sell(Processor[str, str, str, str]):
    """Every write goes to the key of what is bought, whichever shard owns it; the records have the buyers' keys."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.sold: SharedKeyValueStore[str, int] = context.store("sold")
        self.buyers: SharedKeyValueStore[str, list[str]] = context.store("buyers")
        self.first: SharedKeyValueStore[str, int] = context.store("first")

    def process(self, record: Record[str, str]) -> None:
        product = record.value
        self.sold.merge(product, 1)
        self.first.put_if_absent(product, record.timestamp)
        self.first[f"last {product}"] = record.timestamp
        self.buyers.compute(product, _remember, record.key)
        if product.endswith("0"):
            self.buyers.compute(product, _sell_out)
            self.first.delete(product)
        self.context.forward(record)


def _counted(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("sold", value=int, merge=add))
    builder.add_state_store(shared_store("buyers", value=list[str], operations=[_remember, _sell_out], argument=str))
    builder.add_state_store(shared_store("first", value=int))
    sales = builder.stream(setup.topic("sales"), value=str).process(_Sell, stores=["sold", "buyers", "first"], key=str, value=str)
    sales.group_by_key().count(store=setup.store("bought")).to_stream().to(setup.topic("bought"), value=int)
    sales.select_key(lambda _, product: product, key=str).repartition(name="by-product", value=str).process(
        _Sell, stores=["sold", "first", "buyers"], key=str, value=str
    ).to(setup.topic("sales-by-product"))
    return builder.build()


def _sales(rng: Random, count: int) -> Sequence[Phase]:
    return one_phase([fed("sales", any_key(rng), f"p{rng.randrange(25)}", time) for time in moments(rng, count)])


class _Pay(Processor[str, str, str, int]):
    """`5 to k7` transfers from the record's key to another; `5` is a deposit."""

    def process(self, record: Record[str, str]) -> None:
        balances: SharedKeyValueStore[str, int] = self.context.store("balances")
        amount, _, to = record.value.partition(" to ")
        if not to:
            balances.merge(record.key, int(amount))
            return
        left = (balances.get(record.key) or 0) - int(amount)
        balances.put(record.key, left)
        balances.merge(to, int(amount))
        if left < 0:
            balances.put(record.key, left + int(amount))
            balances.merge(to, -int(amount))
            self.context.side_output("rejected", record.with_value("too little"))
            return
        self.context.forward(Record(to, balances[to], record.timestamp))


def _paid(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("balances", value=int, merge=add))
    payments = builder.stream(setup.topic("payments"), value=str)
    paid = payments.process_atomically(_Pay, stores=["balances"], key=str, value=int)
    paid.to(setup.topic("received"))
    paid.group_by_key().count(store=setup.store("receipts")).to_stream().to(setup.topic("receipts"), value=int)
    rejected = paid.side_output("rejected", value=str)
    rejected.to(setup.topic("rejected"))
    rejected.group_by(lambda _, why: why, key=str).count(store=setup.store("reasons"))
    return builder.build()


def _payments(rng: Random, count: int) -> Sequence[Phase]:
    records: list[Fed] = []
    for time in moments(rng, count):
        amount, to = rng.randrange(1, 60), any_key(rng)
        records.append(fed("payments", any_key(rng), f"{amount} to {to}" if rng.random() < 0.7 else f"{amount}", time))
    return one_phase(records)


class _Greet(Processor[str, str, str, str]):
    """Reads a table by a key other than the record's."""

    def process(self, record: Record[str, str]) -> None:
        customers: SharedKeyValueStore[str, str] = self.context.store("customers")
        self.context.forward(record.with_value(f"{record.value} for {customers.get(record.value)}"))


def _greeted(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    customers = Store("customers", caching=setup.caching, shared=True)
    builder.table(setup.topic("customers"), value=str, store=customers).to_stream().to(setup.topic("changes"))
    orders = builder.stream(setup.topic("orders"), value=str)
    orders.process(_Greet, stores=["customers"], key=str, value=str).to(setup.topic("greetings"))
    return builder.build()


def _customers_then_orders(rng: Random, count: int) -> Sequence[Phase]:
    """A key of another lane is read as of the last barrier: so the table changes only while nothing reads it."""
    phases = []
    for turn in range(2):
        times = list(moments(rng, count // 2, start=1_000_000 + turn * 1_000_000))
        changes = [fed("customers", rng.choice(EVERYWHERE), f"name {rng.randrange(1000)}", time) for time in times[::2]]
        orders = [fed("orders", any_key(rng), rng.choice((*EVERYWHERE, "nobody")), time) for time in times[1::2]]
        phases += [Phase(changes), Phase(orders)]
    return phases


SCENARIOS = (
    Scenario("writes to keys of other lanes", _counted, _sales, (Output("bought"), Output.of_stream("sales-by-product"))),
    Scenario(
        "atomic transfers",
        _paid,
        _payments,
        (Output.of_stream("received"), Output.of_stream("rejected"), Output("receipts")),
    ),
    Scenario(
        "reading a table of other lanes", _greeted, _customers_then_orders, (Output("changes"), Output.of_stream("greetings"))
    ),
)
