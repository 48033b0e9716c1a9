"""Foreign-key joins: the subscriptions of a change, the responses, what is dropped as stale, and the result."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProcessingError, SerializationError
from penstock.operators.foreign_keys import (
    CombinedKey,
    ForeignTableJoin,
    Instruction,
    ResponseJoin,
    ResponseSerde,
    Subscription,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionResponse,
    SubscriptionSend,
    SubscriptionSerde,
    subscription_store_spec,
)
from penstock.operators.tables import TableSource
from penstock.processor import Operator, View
from penstock.records import Change, ValueAndTimestamp
from penstock.serdes import Serde, String
from penstock.state import StoreKind
from tests.unit.operators.table_host import Bench, Exchange, Out, Refusing, apply, table, versioned_table

HEADERS = (("trace", b"1"),)
DELETE = Instruction.DELETE_KEY_NO_PROPAGATE
DELETE_AND_ANSWER = Instruction.DELETE_KEY_AND_PROPAGATE
ANSWER = Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
ANSWER_IF_FOUND = Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE


def owner(key: str, value: str) -> str | None:
    """The foreign key of "ann:1" is "ann"; ":1" has none."""
    return value.partition(":")[0] or None


def pair(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def digest_of(value: str) -> bytes:
    bench = Bench().add("send", SubscriptionSend(lambda key, value: "fk", String(), String(), True, False))
    digest: bytes = bench.pipe("send", "k", Change(value))[0].value.digest
    return digest


class TestSend:
    def send(self, change: Change, *, left: bool, versioned: bool = False) -> list[tuple[Any, Instruction]]:
        self.bench = Bench().add("send", SubscriptionSend(owner, String(), String(), left, versioned))
        return [(out.key, out.value.instruction) for out in self.bench.pipe("send", "k", change, 3)]

    @pytest.mark.parametrize(
        ("new", "old", "instructions"),
        [
            (None, None, []),
            ("ann:1", None, [("ann", ANSWER_IF_FOUND)]),
            ("ann:2", "ann:1", [("ann", ANSWER_IF_FOUND)]),
            ("bob:2", "ann:1", [("ann", DELETE), ("bob", ANSWER)]),
            (None, "ann:1", [("ann", DELETE_AND_ANSWER)]),
            (None, ":1", []),
            ("ann:2", ":1", [("ann", ANSWER_IF_FOUND)]),
            (":2", "ann:1", [("ann", DELETE_AND_ANSWER)]),
            (":2", ":1", []),
            (":2", None, []),
        ],
    )
    def test_inner(self, new: str | None, old: str | None, instructions: list[Any]) -> None:
        assert self.send(Change(new, old), left=False) == instructions
        has_no_key = new is not None and owner("k", new) is None
        assert self.bench.drops == ([("send", "null foreign key")] if has_no_key else [])

    @pytest.mark.parametrize(
        ("new", "old", "instructions"),
        [
            (None, None, []),
            ("ann:1", None, [("ann", ANSWER)]),
            ("ann:2", "ann:1", [("ann", ANSWER)]),
            ("bob:2", "ann:1", [("ann", DELETE), ("bob", ANSWER)]),
            (None, "ann:1", [("ann", DELETE), (None, ANSWER)]),
            (None, ":1", [(None, ANSWER)]),
            ("ann:2", ":1", [("ann", ANSWER)]),
            (":2", "ann:1", [("ann", DELETE), (None, ANSWER)]),
            (":2", ":1", [(None, ANSWER)]),
            (":2", None, [(None, ANSWER)]),
        ],
    )
    def test_left(self, new: str | None, old: str | None, instructions: list[Any]) -> None:
        assert self.send(Change(new, old), left=True) == instructions
        assert self.bench.drops == []

    def test_a_subscription_names_its_row(self) -> None:
        bench = Bench().add("send", SubscriptionSend(owner, String(), String(), False, False))
        (first,) = bench.pipe("send", "k", Change("ann:1"), 3, HEADERS)
        assert first == Out("ann", Subscription(digest_of("ann:1"), ANSWER_IF_FOUND, "k"), 3)
        assert bench.headers == [HEADERS]
        assert len(digest_of("ann:1")) == 16
        assert digest_of("ann:1") != digest_of("ann:2")
        (last,) = bench.pipe("send", "another", Change(None, "ann:1"), 4)
        assert last.value.digest is None

    def test_a_row_changed_twice_in_an_epoch_always_requests_a_response(self) -> None:
        """The response to its first subscription arrives after the row has changed, and is dropped as stale."""
        bench = Bench().add("send", SubscriptionSend(owner, String(), String(), False, False))
        bench.pipe("send", "k", Change("ann:1"))
        again = bench.pipe("send", "k", Change("ann:2", "ann:1"))
        assert [(out.key, out.value.instruction) for out in again] == [("ann", ANSWER)]
        gone = bench.pipe("send", "k", Change(None, "ann:2"))
        assert [(out.key, out.value.instruction) for out in gone] == [("ann", DELETE), (None, ANSWER)]

    def test_keys_are_compared_by_their_bytes(self) -> None:
        class Folding(String):
            def serialize(self, value: str) -> bytes:
                return value.lower().encode()

        bench = Bench().add("send", SubscriptionSend(owner, Folding(), String(), False, False))
        assert [out.value.instruction for out in bench.pipe("send", "k", Change("Ann:1", "ann:1"))] == [ANSWER_IF_FOUND]

    def test_a_versioned_table_drops_out_of_order_changes(self) -> None:
        assert self.send(Change("ann:1", None, False), left=True, versioned=True) == []
        assert self.bench.drops == [("send", "out of order")]
        assert self.send(Change("ann:1", None, False), left=True) == [("ann", ANSWER)]

    def test_a_failing_extractor_names_this_node(self) -> None:
        bench = Bench().add("send", SubscriptionSend(lambda key, value: value.owner, String(), String(), False, False))
        with pytest.raises(ProcessingError, match="send: "):
            bench.pipe("send", "k", Change("ann:1"))


class TestReceive:
    def bench(self) -> Bench:
        return Bench(subscription_store_spec("subs")).add("receive", SubscriptionReceive("subs", String(), String()))

    def rows(self, bench: Bench) -> dict[bytes, bytes]:
        return dict(bench.state.store(bench.specs["subs"]).scan())

    def test_stores_and_deletes_subscriptions(self) -> None:
        bench = self.bench()
        asked = Subscription(b"d" * 16, ANSWER_IF_FOUND, "k1")
        assert bench.pipe("receive", "ann", asked, 3, HEADERS) == [Out(CombinedKey("ann", "k1"), asked, 3)]
        bench.pipe("receive", "ann", Subscription(b"e" * 16, ANSWER, "k2"), 4)
        assert self.rows(bench) == {b"\0\0\0\x03annk1": b"d" * 16, b"\0\0\0\x03annk2": b"e" * 16}
        gone = Subscription(None, DELETE_AND_ANSWER, "k1")
        assert bench.pipe("receive", "ann", gone, 5) == [Out(CombinedKey("ann", "k1"), gone, 5)]
        bench.pipe("receive", "ann", Subscription(b"f" * 16, DELETE, "k2"), 6)
        assert self.rows(bench) == {}

    def test_a_null_key_gets_a_response_but_no_subscription(self) -> None:
        bench = self.bench()
        asked = Subscription(None, ANSWER, "k1")
        assert bench.pipe("receive", None, asked, 3) == [Out(CombinedKey(None, "k1"), asked, 3)]
        assert self.rows(bench) == {}

    @pytest.mark.parametrize("instruction", [DELETE, DELETE_AND_ANSWER, ANSWER_IF_FOUND])
    def test_a_null_key_with_another_instruction_is_dropped(self, instruction: Instruction) -> None:
        bench = self.bench()
        assert bench.pipe("receive", None, Subscription(None, instruction, "k1")) == []
        assert bench.drops == [("receive", "null foreign key")]

    def test_a_key_that_cannot_be_serialized_names_this_node(self) -> None:
        bench = self.bench()
        with pytest.raises(ProcessingError, match="receive: "):
            bench.pipe("receive", "ann", ())

    def test_its_store_is_raw(self) -> None:
        assert subscription_store_spec("subs").kind is StoreKind.RAW


def failing_view(key: Any, timestamp: int = 0) -> Any:
    raise LookupError("no view")


class TestJoin:
    def answer(self, instruction: Instruction, key: str | None = "ann", time: int = 5) -> list[Out]:
        bench = Bench(table("r")).add("r", TableSource("r", False)).add("join", SubscriptionJoin("r"))
        bench.pipe("r", "ann", "Ann", 7)
        return bench.pipe("join", CombinedKey(key, "k"), Subscription(b"d", instruction, "k"), time)

    def test_with_a_row(self) -> None:
        assert self.answer(DELETE) == []
        assert self.answer(DELETE_AND_ANSWER) == [Out("k", SubscriptionResponse(b"d", None), 7)]
        assert self.answer(ANSWER) == [Out("k", SubscriptionResponse(b"d", "Ann"), 7)]
        assert self.answer(ANSWER_IF_FOUND, time=9) == [Out("k", SubscriptionResponse(b"d", "Ann"), 9)]

    @pytest.mark.parametrize("key", ["bob", None])
    def test_without_one(self, key: str | None) -> None:
        assert self.answer(DELETE, key) == []
        assert self.answer(DELETE_AND_ANSWER, key) == [Out("k", SubscriptionResponse(b"d", None), 5)]
        assert self.answer(ANSWER, key) == [Out("k", SubscriptionResponse(b"d", None), 5)]
        assert self.answer(ANSWER_IF_FOUND, key) == []

    def test_a_failing_view_names_this_node(self) -> None:
        bench = Bench().add("join", SubscriptionJoin("r"))
        bench._views["r"] = View(failing_view, failing_view, False)
        with pytest.raises(ProcessingError, match="join: no view"):
            bench.pipe("join", CombinedKey("ann", "k"), Subscription(b"d", ANSWER, "k"))


class TestForeignTable:
    def bench(self, versioned: bool = False) -> Bench:
        bench = Bench(subscription_store_spec("subs"))
        bench.add("receive", SubscriptionReceive("subs", String(), String()))
        bench.add("foreign", ForeignTableJoin("subs", String(), String(), versioned))
        for foreign_key, primary_key in [("ann", "k2"), ("ann", "k10"), ("anna", "k1"), ("an", "nk"), ("b", "k3")]:
            bench.pipe("receive", foreign_key, Subscription(primary_key.encode(), ANSWER, primary_key))
        return bench

    def test_notifies_the_subscribers_of_a_key_in_byte_order(self) -> None:
        bench = self.bench()
        assert bench.pipe("foreign", "ann", Change("Ann", "old"), 4, HEADERS) == [
            Out("k10", SubscriptionResponse(b"k10", "Ann"), 4),
            Out("k2", SubscriptionResponse(b"k2", "Ann"), 4),
        ]
        assert bench.headers[-2:] == [HEADERS, HEADERS]
        assert bench.pipe("foreign", "b", Change(None, "Bob"), 5) == [Out("k3", SubscriptionResponse(b"k3", None), 5)]
        assert bench.pipe("foreign", "nobody", Change("x"), 6) == []

    def test_a_null_key_is_dropped(self) -> None:
        bench = self.bench()
        assert bench.pipe("foreign", None, Change("x")) == []
        assert bench.drops == [("foreign", "null key")]

    def test_a_versioned_table_drops_out_of_order_changes(self) -> None:
        bench = self.bench(versioned=True)
        assert bench.pipe("foreign", "b", Change("x", None, False)) == []
        assert bench.drops == [("foreign", "out of order")]
        assert len(self.bench().pipe("foreign", "b", Change("x", None, False))) == 1

    def test_a_key_that_cannot_be_serialized_names_this_node(self) -> None:
        bench = self.bench()
        with pytest.raises(ProcessingError, match="foreign: "):
            bench.pipe("foreign", "b", ())


class TestResponse:
    def bench(self, *, left: bool, joiner: Any = pair) -> Bench:
        bench = Bench(table("l")).add("l", TableSource("l", True)).add("resolve", ResponseJoin("l", String(), joiner, left))
        bench.pipe("l", "k", "ann:1", 50)
        return bench

    @pytest.mark.parametrize("left", [True, False])
    def test_joins_the_row_that_subscribed(self, left: bool) -> None:
        bench = self.bench(left=left)
        asked = digest_of("ann:1")
        assert bench.pipe("resolve", "k", SubscriptionResponse(asked, "Ann"), 3) == [Out("k", "ann:1+Ann", 3)]
        nobody = "ann:1+None" if left else None
        assert bench.pipe("resolve", "k", SubscriptionResponse(asked, None), 4) == [Out("k", nobody, 4)]

    @pytest.mark.parametrize("left", [True, False])
    def test_a_deleted_row_is_deleted_from_the_result(self, left: bool) -> None:
        assert self.bench(left=left).pipe("resolve", "gone", SubscriptionResponse(None, None), 3) == [Out("gone", None, 3)]

    @pytest.mark.parametrize(("key", "digest"), [("k", b"other"), ("k", None), ("gone", b"other")])
    def test_a_response_to_another_row_is_stale(self, key: str, digest: bytes | None) -> None:
        bench = self.bench(left=True)
        assert bench.pipe("resolve", key, SubscriptionResponse(digest, "Ann")) == []
        assert bench.drops == [("resolve", "stale response")]

    def test_a_failing_joiner_names_this_node(self) -> None:
        bench = self.bench(left=True, joiner=lambda left, right: left + right)
        with pytest.raises(ProcessingError, match="resolve: "):
            bench.pipe("resolve", "k", SubscriptionResponse(digest_of("ann:1"), None))


digests = st.none() | st.binary(min_size=16, max_size=16)


class TestSerdes:
    @given(digests, st.sampled_from(Instruction), st.text())
    def test_subscriptions_round_trip(self, digest: bytes | None, instruction: Instruction, key: str) -> None:
        serde = SubscriptionSerde(String())
        subscription = Subscription(digest, instruction, key)
        back = serde.deserialize(serde.serialize(subscription))
        assert back == subscription
        assert type(back.instruction) is Instruction

    @given(digests, st.none() | st.text())
    def test_responses_round_trip(self, digest: bytes | None, value: str | None) -> None:
        serde = ResponseSerde(String())
        back = serde.deserialize(serde.serialize(SubscriptionResponse(digest, value)))
        assert back == SubscriptionResponse(digest, value or None)  # zero bytes mean no value

    def test_formats(self) -> None:
        digest = bytes(range(16))
        assert SubscriptionSerde(str).serialize(Subscription(digest, ANSWER, "k")) == b"\x02" + digest + b"k"
        assert SubscriptionSerde(str).serialize(Subscription(None, DELETE_AND_ANSWER, "k")) == b"\x81k"
        assert ResponseSerde(str).serialize(SubscriptionResponse(digest, "v")) == b"\x00" + digest + b"v"
        assert ResponseSerde(str).serialize(SubscriptionResponse(None, None)) == b"\x80"

    @pytest.mark.parametrize("serde", [SubscriptionSerde(str), ResponseSerde(str)])
    @pytest.mark.parametrize("data", [b"", b"\x7f", b"\x84", b"\x00short"])
    def test_invalid_bytes_are_rejected(self, serde: Serde[Any], data: bytes) -> None:
        with pytest.raises(SerializationError):
            serde.deserialize(data)

    def test_serdes_are_picklable_values(self) -> None:
        for serde in (SubscriptionSerde(str), ResponseSerde(str)):
            serde.serialize  # noqa: B018 - created on first use, and not pickled
            assert pickle.loads(pickle.dumps(serde)) == serde
        assert SubscriptionSerde(str) != ResponseSerde(str)


@pytest.mark.parametrize(
    "operator",
    [
        SubscriptionSend(owner, String(), String(), True, False),
        SubscriptionReceive("subs", String(), String()),
        SubscriptionJoin("r"),
        ForeignTableJoin("subs", String(), String(), False),
        ResponseJoin("l", String(), pair, True),
    ],
)
def test_operators_are_picklable_values(operator: Operator) -> None:
    assert pickle.loads(pickle.dumps(operator)) == operator


@pytest.mark.parametrize(
    ("node", "key", "value"),
    [
        ("send", "k", Change("ann:1")),
        ("receive", "ann", Subscription(b"", ANSWER, "k")),
        ("join", CombinedKey("ann", "k"), Subscription(b"", ANSWER, "k")),
        ("foreign", "ann", Change("Ann")),
        ("resolve", "k", SubscriptionResponse(None, None)),
    ],
)
def test_a_failure_below_is_not_reported_by_this_node(node: str, key: Any, value: Any) -> None:
    bench = whole_join(left=True)
    bench.state.store(bench.specs["subs"]).put(b"\0\0\0\x03annk", b"")
    bench.add("below", Refusing(), node)
    with pytest.raises(ProcessingError, match=r"^refused"):
        bench.pipe(node, key, value)
    assert bench.failures == []


def whole_join(left: bool, *, versioned: bool = False, cached: bool = False) -> Bench:
    """Tables `l` and `r`, the nodes between them, and the result `j`, kept in store `j`."""
    tables = [versioned_table(name, 1000) if versioned else table(name, cached=cached) for name in ("l", "r")]
    return (
        Bench(*tables, subscription_store_spec("subs"), table("j", cached=cached))
        .add("l", TableSource("l", True))
        .add("r", TableSource("r", True))
        .add("send", SubscriptionSend(owner, String(), String(), left, versioned), "l")
        .add("subscriptions", Exchange(String(), SubscriptionSerde(String())), "send")
        .add("receive", SubscriptionReceive("subs", String(), String()), "subscriptions")
        .add("join", SubscriptionJoin("r"), "receive")
        .add("foreign", ForeignTableJoin("subs", String(), String(), versioned), "r")
        .add("responses", Exchange(String(), ResponseSerde(String())), "join", "foreign")
        .add("resolve", ResponseJoin("l", String(), pair, left), "responses")
        .add("j", TableSource("j", True), "resolve")
    )


class TestWholeJoin:
    def test_inner(self) -> None:
        bench = whole_join(left=False)
        assert bench.pipe("l", "k", "ann:1", 1) == []
        assert bench.pipe("r", "ann", "Ann", 2) == [Out("k", Change("ann:1+Ann", None), 2)]
        assert bench.pipe("l", "k", "ann:2", 1) == [Out("k", Change("ann:2+Ann", "ann:1+Ann"), 2)]
        assert bench.pipe("r", "ann", "Anna", 0) == [Out("k", Change("ann:2+Anna", "ann:2+Ann"), 0)]
        assert bench.pipe("l", "k", "bob:2", 5) == [Out("k", Change(None, "ann:2+Anna"), 5)]
        assert bench.pipe("r", "ann", "Annabel", 6) == []
        assert bench.pipe("r", "bob", "Bob", 7) == [Out("k", Change("bob:2+Bob", None), 7)]
        assert bench.pipe("l", "k", ":2", 8) == [Out("k", Change(None, "bob:2+Bob"), 8)]
        assert bench.drops == [("send", "null foreign key")]

    def test_left(self) -> None:
        bench = whole_join(left=True)
        assert bench.pipe("l", "k", "ann:1", 1) == [Out("k", Change("ann:1+None", None), 1)]
        assert bench.pipe("r", "ann", "Ann", 2) == [Out("k", Change("ann:1+Ann", "ann:1+None"), 2)]
        assert bench.pipe("l", "k", ":2", 3) == [Out("k", Change(":2+None", "ann:1+Ann"), 3)]
        assert bench.pipe("r", "ann", None, 4) == []
        assert bench.pipe("l", "k", None, 5) == [Out("k", Change(None, ":2+None"), 5)]
        assert bench.pipe("l", "k", None, 6) == []

    def test_an_empty_right_value_is_none(self) -> None:
        bench = whole_join(left=True)
        bench.pipe("r", "ann", "", 1)
        assert bench.pipe("l", "k", "ann:1", 2) == [Out("k", Change("ann:1+None", None), 2)]

    def test_a_response_that_arrives_after_a_newer_row_is_dropped(self) -> None:
        bench = whole_join(left=False)
        bench.pipe("r", "ann", "Ann", 1)
        bench.pipe("r", "bob", "Bob", 1)
        bench.auto_deliver = False
        bench.pipe("l", "k", "ann:1", 2)
        bench.exchanges["subscriptions"].popleft()()  # Ann's response is under way when the row changes to Bob
        bench.pipe("l", "k", "bob:1", 3)
        bench.deliver()
        assert bench.take() == [Out("k", Change("bob:1+Bob", None), 3)]
        assert bench.drops == [("resolve", "stale response")]

    def test_versioned_late_rows_change_nothing(self) -> None:
        bench = whole_join(left=False, versioned=True)
        bench.pipe("r", "ann", "Ann", 10)
        assert bench.pipe("l", "k", "ann:1", 20) == [Out("k", Change("ann:1+Ann", None), 20)]
        assert bench.pipe("l", "k", "bob:0", 15) == []
        assert bench.pipe("r", "ann", "An", 5) == []
        assert bench.drops == [("send", "out of order"), ("foreign", "out of order")]

    def test_the_view_of_a_right_row_gives_its_time(self) -> None:
        bench = whole_join(left=True)
        bench.pipe("r", "ann", "Ann", 9)
        assert bench.pipe("l", "k", "ann:1", 3) == [Out("k", Change("ann:1+Ann", None), 9)]
        assert bench.view("j").get("k") == ValueAndTimestamp("ann:1+Ann", 9)


left_changes = st.tuples(
    st.just("l"),
    st.sampled_from("12"),
    st.none() | st.tuples(st.sampled_from(["ann", "bob", ""]), st.sampled_from("xy")).map(":".join),
)
right_changes = st.tuples(st.just("r"), st.sampled_from(["ann", "bob"]), st.none() | st.sampled_from(["", "A", "B"]))
steps = st.lists(st.tuples(left_changes | right_changes, st.integers(0, 3)), max_size=25)


@given(st.booleans(), st.booleans(), st.booleans(), steps)
def test_the_result_is_the_join_of_both_tables(left: bool, in_step: bool, cached: bool, changes: list[Any]) -> None:
    """After every change if exchanges deliver immediately; at the end if they deliver later."""
    bench = whole_join(left=left, cached=cached)
    bench.auto_deliver = in_step
    tables: dict[str, dict[str, str]] = {"l": {}, "r": {}}
    result: dict[str, str] = {}
    for time, ((side, key, value), deliveries) in enumerate(changes):
        outputs = bench.pipe(side, key, value, time)
        apply(tables[side], [Out(key, value, time)])
        if in_step:
            outputs += bench.flush()
        for _ in range(0 if in_step else deliveries):
            queue = bench.exchanges["responses" if deliveries % 2 else "subscriptions"]
            if queue:
                queue.popleft()()
        apply(result, [Out(out.key, out.value.new, out.timestamp) for out in outputs + bench.take()])
        if in_step:
            assert result == _join(left, tables["l"], tables["r"])
    bench.deliver()
    apply(result, [Out(out.key, out.value.new, out.timestamp) for out in bench.take() + bench.flush()])
    assert result == _join(left, tables["l"], tables["r"])


def _join(left: bool, rows: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    matches = {key: others.get(owner(key, row) or "") or None for key, row in rows.items()}
    return {key: pair(rows[key], match) for key, match in matches.items() if left or match is not None}
