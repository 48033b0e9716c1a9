"""Every kind of difference is found, and permitted ones are not: a comparison that finds nothing proves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock import Topology
from verification.integration.compare import differences
from verification.integration.scenario import Entry, Output, Reading, Result, Scenario, Sent


def sent(key: str | None, value: str | None, timestamp: int = 0, partition: int | None = None) -> Sent:
    return Sent(None if key is None else key.encode(), None if value is None else value.encode(), timestamp, (), partition)


def result(records: Sequence[Sent], stores: Mapping[str, Sequence[Entry]] | None = None, kind: str = "stores") -> Result:
    return Result({"out": records}, {kind: stores or {}})


def unlike(
    expected: Result, actual: Result, output: Output | None = None, caching: bool = False, undated: tuple[str, ...] = ()
) -> list[str]:
    outputs = (output or Output("out"),)
    scenario = Scenario("s", lambda setup: Topology(), lambda rng, count: [], outputs, undated=undated)
    return [found.where for found in differences(scenario, "a run", caching, expected, actual)]


A1, A2, B1 = sent("a", "1"), sent("a", "2"), sent("b", "1")


def test_keys_may_interleave_but_records_of_a_key_may_not_be_reordered() -> None:
    assert not unlike(result([A1, A2, B1]), result([B1, A1, A2]))
    assert unlike(result([A1, A2, B1]), result([A2, A1, B1]))
    assert unlike(result([A1, A2, B1]), result([A1, A2]))
    assert unlike(result([A1]), result([A1, A1]))


def test_values_times_and_headers_are_compared() -> None:
    assert unlike(result([A1]), result([A1._replace(value=b"x")]))
    assert unlike(result([A1]), result([A1._replace(timestamp=1)]))
    assert unlike(result([A1]), result([A1._replace(headers=(("h", b"1"),))]))


def test_with_caches_only_the_last_counts() -> None:
    assert not unlike(result([A1, A2]), result([A2]), caching=True)
    assert unlike(result([A1, A2]), result([A1]), caching=True)
    assert unlike(result([A2]), result([A2._replace(timestamp=1)]), caching=True)
    assert not unlike(result([A1, sent("a", None)]), result([]), caching=True)
    assert unlike(result([A1]), result([A1, sent("a", None)]), caching=True)


def test_a_stream_is_compared_in_full_whatever_is_cached() -> None:
    assert unlike(result([A1, A2]), result([A2]), Output.of_stream("out"), caching=True)


def test_times_do_not_count_if_only_values_do() -> None:
    output = Output("out", cached=Reading.VALUES)
    assert not unlike(result([A1]), result([A1._replace(timestamp=1)]), output, caching=True)
    assert unlike(result([A1]), result([A2]), output, caching=True)


def test_kinds_split_the_records_of_a_key() -> None:
    alone = Output("out", kind=lambda value: value if value == b"2" else None)
    assert not unlike(result([A1, A2]), result([A2, A1]), alone)
    assert unlike(result([A1, A2]), result([A1]), alone)


def test_records_without_a_key_have_no_order() -> None:
    assert not unlike(result([sent(None, "1"), sent(None, "2")]), result([sent(None, "2"), sent(None, "1")]))
    assert unlike(result([sent(None, "1")]), result([]))


def test_a_bag_has_no_order() -> None:
    bag = Output("out", plain=Reading.BAG)
    assert not unlike(result([A1, A2]), result([A2, A1]), bag)
    assert unlike(result([A1, A2]), result([A2]), bag)


def test_partitions_count_if_a_partitioner_chose_them() -> None:
    assert not unlike(result([A1]), result([sent("a", "1", partition=3)]))
    assert unlike(result([sent("a", "1", partition=2)]), result([sent("a", "1", partition=3)]))


def test_an_unknown_output_is_a_difference() -> None:
    assert unlike(result([A1]), Result({"out": [A1], "other": [A1]}, {})) == ["output other"]


def test_stores_and_changelogs_are_compared_with_the_drivers_stores() -> None:
    entries = {"table": [Entry("'a'", "1", 5)]}
    assert not unlike(result([], entries), result([], entries, "changelogs"))
    assert unlike(result([], entries), result([], {"table": []}, "changelogs")) == ["changelogs: table"]
    later = {"table": [Entry("'a'", "1", 6)]}
    assert unlike(result([], entries), result([], later))
    assert not unlike(result([], entries), result([], later), caching=True, undated=("table",))
    assert unlike(result([], entries), result([], later), undated=("table",))
