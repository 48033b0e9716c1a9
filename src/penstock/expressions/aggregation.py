"""Aggregates as functions of a group's records: how an aggregate starts, and how values are added, subtracted and merged.

A result is kept in a store and read again in a later epoch, so it is a bool, a str, an int of 64 bits or a finite float: what
JSON gives back as it was. It is a new object for every record, because others may still need the old one.

A mean, the largest values and a number of different values follow from more than their result. `Results` has that besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite, isnan
from typing import Any, NamedTuple

from penstock.expressions.nodes import Aggregate, Aggregates, Function
from penstock.expressions.rows import Evaluate, evaluator
from penstock.expressions.types import FIRST_INT64, FLOAT, LAST_INT64, NUMBER, SCALARS, Kind, fields_of
from penstock.records import Results

Keep = Callable[[Any], Any]
"""Returns a value as it is kept; raises if it cannot be."""

Step = Callable[[Any, Any, Any], Any]
"""`step(key, value, old)`: the aggregate with one more value, or one less."""


MOST_DISTINCT = 10_000
"""The most values that a group may have for their number to be kept: each new one writes all of them again."""


class State(NamedTuple):
    """What follows from a state, and the state from the list of its parts."""

    result: Callable[[Any], Any]
    restored: Callable[[list[Any]], Any]


class Steps(NamedTuple):
    """How one aggregate is computed; only a count, a sum and a mean can be subtracted from."""

    initial: Any
    add: Step
    merge: Callable[[Any, Any], Any]
    subtract: Step | None


def initializer(node: Aggregates) -> Callable[[], Any]:
    """Return the function that creates the aggregates before the first record."""
    initial = {name: steps.initial for name, steps in _steps(node).items()}
    into, states = node.into, stateful(node)
    if states:
        results = results_of(states)
        return lambda: results(initial)
    return initial.copy if into is None else lambda: into(**initial)


def adder(node: Aggregates) -> Step:
    """Return `add(key, value, aggregates)`."""
    return _for_each(node, {name: steps.add for name, steps in _steps(node).items()})


def subtractor(node: Aggregates) -> Step:
    """Return `subtract(key, value, aggregates)`."""
    subtract = {name: steps.subtract for name, steps in _steps(node).items() if steps.subtract is not None}
    assert len(subtract) == len(node.fields), "only count, sum and mean can be subtracted from"
    return _for_each(node, subtract)


def merger(node: Aggregates) -> Step:
    """Return `merge(key, one, two)`, for sessions: the records of `one` come before those of `two`."""
    merges = [(name, steps.merge) for name, steps in _steps(node).items()]
    into, states = node.into, stateful(node)
    if states:
        results = results_of(states)
        return lambda key, one, two: results({name: merge(one.states[name], two.states[name]) for name, merge in merges})
    if into is None:
        return lambda key, one, two: {name: merge(one[name], two[name]) for name, merge in merges}
    return lambda key, one, two: into(**{name: merge(getattr(one, name), getattr(two, name)) for name, merge in merges})


def _for_each(node: Aggregates, steps: dict[str, Step]) -> Step:
    pairs, into, states = list(steps.items()), node.into, stateful(node)
    if states:
        results = results_of(states)
        return lambda key, value, old: results({name: step(key, value, old.states[name]) for name, step in pairs})
    if into is None:
        return lambda key, value, old: {name: step(key, value, old[name]) for name, step in pairs}
    return lambda key, value, old: into(**{name: step(key, value, getattr(old, name)) for name, step in pairs})


def stateful(node: Aggregates) -> Mapping[str, State]:
    """Return the states of those aggregates, by name, that have another one than their result."""
    return {name: STATES[part.function] for name, part in node.fields if part.function in STATES}


def results_of(stateful: Mapping[str, State]) -> Callable[[dict[str, Any]], Results]:
    """Return the function from the states of aggregates to their results."""

    def results(states: dict[str, Any]) -> Results:
        found = Results((name, stateful[name].result(state) if name in stateful else state) for name, state in states.items())
        found.states = states
        return found

    return results


def _steps(node: Aggregates) -> dict[str, Steps]:
    fields = {} if node.into is None else fields_of(node.into) or {}
    return {name: _STEPS[part.function](part, fields[name].kind if name in fields else None) for name, part in node.fields}


def _count(node: Aggregate, kind: Kind | None) -> Steps:
    def merge(one: int, two: int) -> int:
        return one + two

    if node.operand is None:
        return Steps(0, lambda key, value, old: old + 1, merge, lambda key, value, old: old - 1)
    operand = evaluator(node.operand)
    return Steps(
        0,
        lambda key, value, old: old if operand(key, value) is None else old + 1,
        merge,
        lambda key, value, old: old if operand(key, value) is None else old - 1,
    )


def _sum(node: Aggregate, kind: Kind | None) -> Steps:
    operand, keep = _operand(node), keeper(kind or NUMBER, f"the {node.describe()}")

    def add(key: Any, value: Any, old: Any) -> Any:
        number = operand(key, value)
        return old if number is None else keep(old + number)

    def subtract(key: Any, value: Any, old: Any) -> Any:
        number = operand(key, value)
        return old if number is None else keep(old - number)

    return Steps(0.0 if kind == FLOAT else 0, add, lambda one, two: keep(one + two), subtract)


def _min(node: Aggregate, kind: Kind | None) -> Steps:
    return _extreme(node, kind, lambda new, old: new < old)


def _max(node: Aggregate, kind: Kind | None) -> Steps:
    return _extreme(node, kind, lambda new, old: new > old)


def _extreme(node: Aggregate, kind: Kind | None, replaces: Callable[[Any, Any], bool]) -> Steps:
    operand, keep = _operand(node), keeper(kind, f"the {node.describe()}")

    def add(key: Any, value: Any, old: Any) -> Any:
        new = operand(key, value)
        if new is None or (type(new) is float and isnan(new)):
            return old
        new = keep(new)
        return new if old is None or replaces(new, old) else old

    def merge(one: Any, two: Any) -> Any:
        return two if one is None or (two is not None and replaces(two, one)) else one

    return Steps(None, add, merge, None)


def _first(node: Aggregate, kind: Kind | None) -> Steps:
    operand, keep = _operand(node), keeper(kind, f"the {node.describe()}")

    def add(key: Any, value: Any, old: Any) -> Any:
        new = operand(key, value)
        return old if new is None or old is not None else keep(new)

    return Steps(None, add, lambda one, two: two if one is None else one, None)


def _last(node: Aggregate, kind: Kind | None) -> Steps:
    operand, keep = _operand(node), keeper(kind, f"the {node.describe()}")

    def add(key: Any, value: Any, old: Any) -> Any:
        new = operand(key, value)
        return old if new is None else keep(new)

    return Steps(None, add, lambda one, two: one if two is None else two, None)


def _mean(node: Aggregate, kind: Kind | None) -> Steps:
    operand, keep = _operand(node), keeper(NUMBER, f"the sum of the {node.describe()}")

    def state(count: int, total: Any) -> tuple[int, Any]:
        if not count:
            return 0, 0
        is_long = type(total) is int and not FIRST_INT64 <= total <= LAST_INT64
        return count, keep(float(total) if is_long else total)

    def add(key: Any, value: Any, old: Any) -> Any:
        number = operand(key, value)
        return old if number is None else state(old[0] + 1, old[1] + number)

    def subtract(key: Any, value: Any, old: Any) -> Any:
        number = operand(key, value)
        return old if number is None else state(old[0] - 1, old[1] - number)

    return Steps((0, 0), add, lambda one, two: state(one[0] + two[0], one[1] + two[1]), subtract)


def _top(node: Aggregate, kind: Kind | None) -> Steps:
    operand, keep, most = _operand(node), keeper(None, f"the {node.describe()}"), node.most

    def largest(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sorted(values, reverse=True)[:most])

    def add(key: Any, value: Any, old: Any) -> Any:
        new = operand(key, value)
        if new is None or (type(new) is float and isnan(new)):
            return old
        new = keep(new)
        return old if len(old) == most and new <= old[-1] else largest((*old, new))

    return Steps((), add, lambda one, two: largest((*one, *two)), None)


def _count_distinct(node: Aggregate, kind: Kind | None) -> Steps:
    operand, text = _operand(node), f"the {node.describe()}"
    keep = keeper(None, text)

    def bounded(values: dict[Any, None]) -> dict[Any, None]:
        if len(values) > MOST_DISTINCT:
            raise OverflowError(f"{text} has more than {MOST_DISTINCT} values, which cannot be kept")
        return values

    def add(key: Any, value: Any, old: Any) -> Any:
        new = operand(key, value)
        return old if new is None or keep(new) in old else bounded({**old, new: None})

    return Steps({}, add, lambda one, two: bounded({**one, **two}), None)


def _quotient(state: Any) -> float | None:
    count, total = state
    return total / count if count else None


def _operand(node: Aggregate) -> Evaluate:
    assert node.operand is not None, "only a count may have none"
    return evaluator(node.operand)


def keeper(kind: Kind | None, text: str) -> Keep:
    """Return how a result of a kind is kept; None for a result of any kind."""
    types = (int, float) if kind == NUMBER else SCALARS if kind is None or kind.of is None else (kind.of,)
    expected = " or ".join(each.__name__ for each in types)
    converts = kind == FLOAT

    def keep(value: Any) -> Any:
        found = type(value)
        if converts and found is int:
            value, found = float(value), float
        if found not in types:
            raise TypeError(f"{text} would be a {found.__name__}, not {expected}")
        if found is int and not FIRST_INT64 <= value <= LAST_INT64:
            raise OverflowError(f"{text} has more than 64 bits")
        if found is float and not isfinite(value):
            raise OverflowError(f"{text} is {value}, which cannot be kept")
        return value

    return keep


_STEPS: dict[Function, Callable[[Aggregate, Kind | None], Steps]] = {
    Function.COUNT: _count,
    Function.SUM: _sum,
    Function.MIN: _min,
    Function.MAX: _max,
    Function.FIRST: _first,
    Function.LAST: _last,
    Function.MEAN: _mean,
    Function.TOP: _top,
    Function.COUNT_DISTINCT: _count_distinct,
}

STATES: dict[Function, State] = {
    Function.MEAN: State(_quotient, tuple),
    Function.TOP: State(list, tuple),
    Function.COUNT_DISTINCT: State(len, dict.fromkeys),
}
"""The aggregates that keep more than their result: how many values and their sum, the largest values, all different values."""
