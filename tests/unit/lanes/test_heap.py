"""`TimeHeap` compared with java.util.PriorityQueue: items are sorted by time, and ties come out in the same order.

The orders of ties are derived by hand from the algorithm: a new item stops below a parent of the same time; the last item sinks
from the top, past the left child if both children have the same time.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lanes.heap import TimeHeap

Item = tuple[int, str]


def popped(heap: TimeHeap[Item]) -> list[str]:
    items = []
    while (item := heap.pop()) is not None:
        items.append(item[1])
    return items


def filled(*items: Item) -> TimeHeap[Item]:
    heap: TimeHeap[Item] = TimeHeap(lambda item: item[0])
    for item in items:
        heap.push(item)
    return heap


def equal(names: str) -> list[Item]:
    return [(0, name) for name in names]


@pytest.mark.parametrize(("pushed", "expected"), [("a", "a"), ("ab", "ab"), ("abc", "acb"), ("abcd", "adcb"), ("abcde", "aedcb")])
def test_items_of_one_time_come_out_as_from_javas_queue(pushed: str, expected: str) -> None:
    assert "".join(popped(filled(*equal(pushed)))) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("p 0 1 p 0 1", "1 4 5 2"),
        ("1 3 0 p 2 p 2 3 p 3 1 1 1 1 3", "2 0 4 10 13 11 12 6 1 14 9 7"),
        ("p p 3 2 0 2 1 0 0 p p p 0 1 p 2 1 0 2 1 0 1 1", "4 8 7 12 17 20 22 6 19 13 21 16 5 15 3 18 2"),
        (
            "1 p 1 p 1 3 2 1 3 p p 2 3 2 3 0 0 p 3 p p p 3 2 1 2 2 1 p 3 1 0",
            "0 2 4 7 15 16 11 6 24 31 27 30 13 26 23 25 18 22 5 12 29 14 8",
        ),
    ],
)
def test_steps_recorded_from_javas_queue_give_the_same_items(steps: str, expected: str) -> None:
    """Each step pushes an item of that time, or polls (p); items are named after the step that pushed them."""
    heap, got = filled(), []
    for number, step in enumerate(steps.split()):
        if step != "p":
            heap.push((int(step), str(number)))
        elif (item := heap.pop()) is not None:
            got.append(item[1])
    assert " ".join([*got, *popped(heap)]) == expected


def test_a_later_item_at_the_top_sinks_past_the_earlier_child_only() -> None:
    # After "a" leaves, "d" (9) sinks: both children have time 5, so the left one, "b", rises; "d" then stays below it.
    assert popped(filled((1, "a"), (5, "b"), (5, "c"), (9, "d"))) == ["a", "b", "c", "d"]


def test_a_new_item_rises_past_later_ones_only() -> None:
    # (3, "d") rises past (5, "b") and stops below (3, "a").
    heap = filled((3, "a"), (5, "b"), (4, "c"), (3, "d"))
    assert heap.peek() == (3, "a")
    assert popped(heap) == ["a", "d", "c", "b"]


def test_an_item_put_back_at_the_same_time_goes_behind_the_others() -> None:
    heap = filled(*equal("ab"))
    first = heap.pop()
    assert first is not None
    heap.push(first)
    assert popped(heap) == ["b", "a"]


def test_an_empty_heap_returns_none() -> None:
    heap = filled()
    assert (heap.peek(), heap.pop(), len(heap)) == (None, None, 0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5)))
def test_items_come_out_by_time_and_none_is_lost(times: list[int]) -> None:
    heap = filled(*((time, str(n)) for n, time in enumerate(times)))
    assert len(heap) == len(times)
    names = popped(heap)
    assert [times[int(name)] for name in names] == sorted(times)
    assert sorted(map(int, names)) == list(range(len(times)))


@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(0, 5), st.none())))
def test_pushes_and_pops_in_any_order_always_give_the_earliest(steps: list[int | None]) -> None:
    heap = filled()
    inside: list[Item] = []
    for number, step in enumerate(steps):
        if step is None:
            item = heap.pop()
            assert (item is None) == (not inside)
            if item is not None:
                assert item[0] == min(inside)[0]
                inside.remove(item)
        else:
            heap.push((step, str(number)))
            inside.append((step, str(number)))
        assert len(heap) == len(inside)
