"""Tables derived from one parent: what they forward, with and without old values, stored or not, cached, versioned."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.errors import ProcessingError, TopologyError
from penstock.operators.tables import TableFilter, TableMapValues, TableRepartitionMap, TableSource, TableTransformValues
from penstock.processor import Operator, ProcessorContext, ValueTransformer
from penstock.records import Change, Record
from penstock.serdes import String
from tests.unit.operators.table_host import Bench, Out, Refusing, number_table, table, versioned_table

HEADERS = (("trace", b"1"),)


def is_long(key: str, value: str) -> bool:
    return len(value) > 2


def upper(key: str, value: str) -> str:
    return f"{key}:{value.upper()}"


def source(**changes: Any) -> TableSource:
    return TableSource(**{"store": "t", "send_old_values": True, **changes})


class TestSource:
    def test_without_a_store_every_value_is_a_change(self) -> None:
        bench = Bench().add("t", source(store=None, send_old_values=False))
        assert bench.pipe("t", "a", "1", 5, HEADERS) == [Out("a", Change("1", None), 5)]
        assert bench.pipe("t", "a", None, 6) == [Out("a", Change(None, None), 6)]
        assert bench.headers[0] == HEADERS

    @pytest.mark.parametrize("store", [None, "t"])
    def test_a_null_key_is_dropped(self, store: str | None) -> None:
        bench = Bench(table("t")).add("t", source(store=store))
        assert bench.pipe("t", None, "1") == []
        assert bench.drops == [("t", "null key")]

    def test_sends_the_old_value(self) -> None:
        bench = Bench(table("t")).add("t", source())
        assert bench.pipe("t", "a", "1", 1) == [Out("a", Change("1", None), 1)]
        assert bench.pipe("t", "a", "2", 2) == [Out("a", Change("2", "1"), 2)]
        assert bench.pipe("t", "a", None, 3) == [Out("a", Change(None, "2"), 3)]
        assert bench.pipe("t", "a", None, 4) == [Out("a", Change(None, None), 4)]

    def test_sends_old_values_only_if_requested(self) -> None:
        bench = Bench(table("t")).add("t", source(send_old_values=False))
        bench.pipe("t", "a", "1", 1)
        assert bench.pipe("t", "a", "2", 2) == [Out("a", Change("2", None), 2)]
        assert bench.rows("t") == {"a": "2"}

    def test_an_older_record_still_replaces_a_row(self) -> None:
        bench = Bench(table("t")).add("t", source())
        bench.pipe("t", "a", "new", 10)
        assert bench.pipe("t", "a", "late", 4) == [Out("a", Change("late", "new"), 4)]
        assert bench.view("t").get("a") == ("late", 4)

    def test_a_cached_table_sends_the_last_change_with_the_row_before_the_epoch(self) -> None:
        bench = Bench(table("t", cached=True)).add("t", source())
        bench.pipe("t", "a", "1", 1)
        assert bench.flush() == [Out("a", Change("1", None), 1)]
        assert bench.pipe("t", "a", "2", 2) + bench.pipe("t", "b", "x", 2) + bench.pipe("t", "a", "3", 3) == []
        assert bench.flush() == [Out("b", Change("x", None), 2), Out("a", Change("3", "1"), 3)]

    @pytest.mark.parametrize("send_old_values", [True, False])
    def test_a_cached_table_drops_the_deletion_of_a_missing_row(self, send_old_values: bool) -> None:
        bench = Bench(table("t", cached=True)).add("t", source(send_old_values=send_old_values))
        bench.pipe("t", "a", "1", 1)
        bench.pipe("t", "a", None, 2)
        assert bench.flush() == []
        bench.pipe("t", "a", "1", 3)
        bench.flush()
        bench.pipe("t", "a", None, 4)
        assert bench.flush() == [Out("a", Change(None, "1" if send_old_values else None), 4)]

    def test_a_versioned_table_marks_out_of_order_changes_and_drops_expired_ones(self) -> None:
        bench = Bench(versioned_table("t", history_ms=100)).add("t", source())
        assert bench.pipe("t", "a", "1", 50) == [Out("a", Change("1", None, True), 50)]
        assert bench.pipe("t", "a", "0", 40) == [Out("a", Change("0", "1", False), 40)]
        assert bench.pipe("t", "a", "2", 200) == [Out("a", Change("2", "1", True), 200)]
        assert bench.pipe("t", "a", "ancient", 99) == []
        assert bench.pipe("t", "a", None, 150) == [Out("a", Change(None, "2", False), 150)]
        assert bench.view("t").get("a") == ("2", 200)

    def test_a_value_that_cannot_be_serialized_names_this_node(self) -> None:
        class Failing(String):
            def serialize(self, value: str) -> bytes:
                raise RuntimeError(value)

        bench = Bench(table("t", Failing())).add("t", source())
        bench.goes_on = True
        bench.pipe("t", "a", "1", 7, HEADERS)
        ((node, _, key),) = bench.failures
        assert (node, key) == ("t", "a")


def filtering(**changes: Any) -> TableFilter:
    given = {
        "parent_table": "t",
        "predicate": is_long,
        "negate": False,
        "store": None,
        "send_old_values": False,
        "versioned": False,
    }
    return TableFilter(**{**given, **changes})


class TestFilter:
    def test_rows_that_do_not_pass_are_deleted(self) -> None:
        bench = Bench().add("f", filtering())
        assert bench.pipe("f", "a", Change("long", "x"), 1) == [Out("a", Change("long", None), 1)]
        assert bench.pipe("f", "a", Change("x", "long"), 2) == [Out("a", Change(None, None), 2)]
        assert bench.pipe("f", "a", Change(None, "x"), 3) == [Out("a", Change(None, None), 3)]

    def test_a_negated_filter_keeps_the_rest(self) -> None:
        bench = Bench().add("f", filtering(negate=True, send_old_values=True))
        assert bench.pipe("f", "a", Change("x", "long")) == [Out("a", Change("x", None), 0)]
        assert bench.pipe("f", "a", Change("long", "x")) == [Out("a", Change(None, "x"), 0)]

    def test_any_truthy_result_passes(self) -> None:
        bench = Bench().add("f", filtering(predicate=lambda key, value: value))
        assert bench.pipe("f", "a", Change("yes")) == [Out("a", Change("yes"), 0)]
        assert bench.pipe("f", "a", Change("")) == [Out("a", Change(None), 0)]

    def test_with_old_values_it_sends_no_deletion_of_rows_that_never_passed(self) -> None:
        bench = Bench().add("f", filtering(send_old_values=True))
        assert bench.pipe("f", "a", Change("x", None), 1) == []
        assert bench.pipe("f", "a", Change("long", "x"), 2) == [Out("a", Change("long", None), 2)]
        assert bench.pipe("f", "a", Change("x", "long"), 3) == [Out("a", Change(None, "long"), 3)]
        assert bench.pipe("f", "a", Change(None, "x"), 4) == []

    def test_a_versioned_filter_sends_every_deletion(self) -> None:
        bench = Bench().add("f", filtering(send_old_values=True, versioned=True))
        assert bench.pipe("f", "a", Change("x", None, False), 1) == [Out("a", Change(None, None, False), 1)]

    def test_with_a_store_its_old_values_are_the_stored_ones(self) -> None:
        bench = Bench(table("s")).add("f", filtering(store="s", send_old_values=True))
        assert bench.pipe("f", "a", Change("long", "whatever"), 1) == [Out("a", Change("long", None), 1)]
        assert bench.pipe("f", "a", Change("longer", None), 2) == [Out("a", Change("longer", "long"), 2)]
        assert bench.pipe("f", "a", Change("x", None), 3) == [Out("a", Change(None, "longer"), 3)]
        assert bench.pipe("f", "a", Change("x", "long"), 4) == []
        assert bench.rows("s") == {}

    def test_with_a_store_and_no_old_values_it_forwards_every_deletion(self) -> None:
        bench = Bench(table("s")).add("f", filtering(store="s"))
        assert bench.pipe("f", "a", Change("x", "long"), 4) == [Out("a", Change(None, None), 4)]

    def test_a_cached_filter_without_old_values_drops_needless_deletions(self) -> None:
        bench = Bench(table("s", cached=True)).add("f", filtering(store="s"))
        bench.pipe("f", "a", Change("x"), 1)
        bench.pipe("f", "b", Change("long"), 1)
        assert bench.flush() == [Out("b", Change("long", None), 1)]
        bench.pipe("f", "b", Change("x"), 2)
        assert bench.flush() == [Out("b", Change(None, None), 2)]

    def test_in_a_versioned_store_it_forwards_what_the_store_accepted(self) -> None:
        bench = Bench(versioned_table("s", 100)).add("f", filtering(store="s", send_old_values=True, versioned=True))
        bench.pipe("f", "a", Change("long", None), 150)
        assert bench.pipe("f", "a", Change("x", None), 120) == [Out("a", Change(None, "long", False), 120)]
        assert bench.pipe("f", "a", Change("older", None), 10) == []

    def test_a_failing_predicate_names_this_node(self) -> None:
        bench = Bench().add("f", filtering(predicate=lambda key, value: value > 1))
        with pytest.raises(ProcessingError, match="f: '>' not supported"):
            bench.pipe("f", "a", Change("x"))


def mapping(**changes: Any) -> TableMapValues:
    return TableMapValues(**{"parent_table": "t", "mapper": upper, "store": None, "send_old_values": False, **changes})


class TestMapValues:
    def test_maps_new_values_and_forwards_deletions(self) -> None:
        bench = Bench().add("m", mapping())
        assert bench.pipe("m", "a", Change("x", "y"), 1) == [Out("a", Change("a:X", None), 1)]
        assert bench.pipe("m", "a", Change(None, "x", False), 2) == [Out("a", Change(None, None, False), 2)]

    def test_maps_old_values_if_requested(self) -> None:
        bench = Bench().add("m", mapping(send_old_values=True))
        assert bench.pipe("m", "a", Change("x", "y")) == [Out("a", Change("a:X", "a:Y"), 0)]
        assert bench.pipe("m", "a", Change("x", None)) == [Out("a", Change("a:X", None), 0)]

    def test_with_a_store_its_old_values_are_the_stored_ones(self) -> None:
        bench = Bench(table("s")).add("m", mapping(store="s", send_old_values=True))
        assert bench.pipe("m", "a", Change("x", "y"), 1) == [Out("a", Change("a:X", None), 1)]
        assert bench.pipe("m", "a", Change(None, None), 2) == [Out("a", Change(None, "a:X"), 2)]

    def test_with_a_store_and_without_old_values(self) -> None:
        bench = Bench(table("s")).add("m", mapping(store="s"))
        bench.pipe("m", "a", Change("x"), 1)
        assert bench.pipe("m", "a", Change("y", "x"), 2) == [Out("a", Change("a:Y", None), 2)]

    def test_a_value_mapped_to_none_is_a_deletion(self) -> None:
        bench = Bench(table("s")).add("m", mapping(store="s", mapper=lambda key, value: value or None))
        bench.pipe("m", "a", Change("x"), 1)
        assert bench.pipe("m", "a", Change(""), 2) == [Out("a", Change(None, None), 2)]
        assert bench.rows("s") == {}

    def test_a_failing_mapper_may_be_skipped(self) -> None:
        bench = Bench().add("m", mapping(mapper=lambda key, value: 1 / value))
        bench.goes_on = True
        assert bench.pipe("m", "a", Change(0), 9) == []
        assert bench.failures[0][2] == "a"
        assert bench.pipe("m", "a", Change(1)) == [Out("a", Change(1.0), 0)]


class Counting(ValueTransformer[str, Any, str]):
    """Numbers the values of each key."""

    log: list[str]

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        self.log.append("init")

    def transform(self, key: str, value: Any) -> str:
        numbers = self.context.store("numbers")
        number = (numbers.get(key) or 0) + 1
        numbers.put(key, number, 0)
        return f"{value}#{number}"

    def close(self) -> None:
        self.log.append("close")


class Same(ValueTransformer[str, str, str]):
    """Changes nothing."""

    def transform(self, key: str, value: str) -> str:
        return value


class TestTransformValues:
    def bench(self, *, log: list[str] | None = None, **changes: Any) -> Bench:
        given = {
            "parent_table": "t",
            "supplier": lambda: Counting([] if log is None else log),
            "stores": ("numbers",),
            "store": None,
            "send_old_values": False,
        }
        operator = TableTransformValues(**{**given, **changes})
        return Bench(table("t"), table("s"), number_table("numbers")).add("t", source()).add("v", operator)

    def test_the_transformer_is_called_for_deletions_too(self) -> None:
        bench = self.bench()
        assert bench.pipe("v", "a", Change("x", "y"), 1) == [Out("a", Change("x#1", None), 1)]
        assert bench.pipe("v", "a", Change(None, "x"), 2) == [Out("a", Change("None#2", None), 2)]

    def test_old_values_are_transformed_after_new_ones(self) -> None:
        bench = self.bench(send_old_values=True)
        assert bench.pipe("v", "a", Change("x", "y")) == [Out("a", Change("x#1", "y#2"), 0)]

    def test_with_a_store_its_old_values_are_the_stored_ones(self) -> None:
        bench = self.bench(store="s", send_old_values=True)
        assert bench.pipe("v", "a", Change("x", "y"), 1) == [Out("a", Change("x#1", None), 1)]
        assert bench.pipe("v", "a", Change("z", "x"), 2) == [Out("a", Change("z#2", "x#1"), 2)]
        assert bench.view("v").get("a") == ("z#2", 2)

    def test_with_a_store_and_without_old_values(self) -> None:
        bench = self.bench(store="s")
        bench.pipe("v", "a", Change("x"), 1)
        assert bench.pipe("v", "a", Change("y"), 2) == [Out("a", Change("y#2", None), 2)]

    def test_it_is_opened_and_closed_with_the_lane(self) -> None:
        log: list[str] = []
        bench = self.bench(log=log)
        bench.pipe("v", "a", Change("x"))
        assert log == ["init"]
        for close in bench.closes:
            close()
        assert log == ["init", "close"]

    def test_its_view_transforms_what_the_parent_has(self) -> None:
        bench = self.bench()
        view = bench.view("v")
        bench.pipe("t", "a", "x", 5)
        assert view.get("a") == ("x#1", 5)
        assert view.get("nobody") == ("None#1", -1)

    def test_it_cannot_forward(self) -> None:
        class Forwarding(ValueTransformer[str, str, str]):
            def transform(self, key: str, value: str) -> str:
                self.context.forward(Record(key, value, 0))
                return value

        with pytest.raises(ProcessingError, match="v: a ValueTransformer cannot forward records"):
            self.bench(supplier=Forwarding).pipe("v", "a", Change("x"))

    def test_a_failing_transformer_names_this_node(self) -> None:
        class Failing(ValueTransformer[str, str, str]):
            def transform(self, key: str, value: str) -> str:
                raise LookupError(key)

        with pytest.raises(ProcessingError, match="v: a"):
            self.bench(supplier=Failing).pipe("v", "a", Change("x"))

    def test_the_supplier_must_return_a_transformer(self) -> None:
        with pytest.raises(TopologyError, match="v: the supplier must return a ValueTransformer, not a str"):
            self.bench(supplier=lambda: "transformer").pipe("v", "a", Change("x"))


def by_first(key: str, value: str) -> tuple[str, str]:
    return value[:1], value


class TestRepartitionMap:
    def bench(self, selector: Any = by_first, versioned: bool = False) -> Bench:
        return Bench().add("g", TableRepartitionMap(selector, versioned))

    def test_subtracts_from_the_old_group_before_it_adds_to_the_new(self) -> None:
        assert self.bench().pipe("g", "k", Change("blue", "amber"), 3, HEADERS) == [
            Out("a", Change(None, "amber"), 3),
            Out("b", Change("blue", None), 3),
        ]

    def test_within_a_group_both_are_one_change(self) -> None:
        assert self.bench().pipe("g", "k", Change("apple", "amber"), 3) == [Out("a", Change("apple", "amber"), 3)]

    def test_new_rows_and_deleted_rows(self) -> None:
        bench = self.bench()
        assert bench.pipe("g", "k", Change("apple", None)) == [Out("a", Change("apple", None), 0)]
        assert bench.pipe("g", "k", Change(None, "apple")) == [Out("a", Change(None, "apple"), 0)]
        assert bench.pipe("g", "k", Change(None, None)) == []

    def test_rows_without_a_group_or_a_value_are_dropped(self) -> None:
        bench = self.bench(lambda key, value: None if value == "none" else (value if value != "key" else None, value))
        assert bench.pipe("g", "k", Change("key", "x")) == [Out("x", Change(None, "x"), 0)]
        assert bench.pipe("g", "k", Change("x", "none")) == [Out("x", Change("x", None), 0)]
        bench = self.bench(lambda key, value: (key, None))
        assert bench.pipe("g", "k", Change("x", "y")) == []

    def test_equal_keys_of_different_types_are_different_groups(self) -> None:
        bench = self.bench(lambda key, value: (value, value))
        assert bench.pipe("g", "k", Change(True, 1)) == [Out(1, Change(None, 1), 0), Out(True, Change(True, None), 0)]

    def test_a_versioned_table_drops_out_of_order_changes(self) -> None:
        assert self.bench(versioned=True).pipe("g", "k", Change("apple", "amber", False)) == []
        assert self.bench(versioned=True).pipe("g", "k", Change("apple", None, True)) == [Out("a", Change("apple"), 0)]
        assert self.bench().pipe("g", "k", Change("apple", None, False)) == [Out("a", Change("apple", None, False), 0)]

    def test_a_row_without_a_key_fails(self) -> None:
        with pytest.raises(ProcessingError, match="needs a key"):
            self.bench().pipe("g", None, Change("apple"))

    def test_a_failing_selector_names_this_node(self) -> None:
        with pytest.raises(ProcessingError, match="g: "):
            self.bench(lambda key, value: value["group"]).pipe("g", "k", Change("apple"))


@pytest.mark.parametrize("operator", [source(), filtering(), mapping(), TableRepartitionMap(by_first, False)])
def test_operators_are_picklable_values(operator: Operator) -> None:
    assert pickle.loads(pickle.dumps(operator)) == operator


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        (source(store=None), "long"),
        (filtering(), Change("long")),
        (mapping(), Change("long")),
        (TableTransformValues("t", Same, (), None, False), Change("long")),
        (TableRepartitionMap(by_first, False), Change("long")),
    ],
)
def test_a_failure_below_is_not_reported_by_this_node(operator: Operator, value: Any) -> None:
    bench = Bench().add("n", operator).add("below", Refusing(), "n")
    with pytest.raises(ProcessingError, match=r"^refused"):
        bench.pipe("n", "a", value)
    assert bench.failures == []
