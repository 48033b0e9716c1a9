"""Replacements for functions that call other systems: they answer and fail as a test says, after delays that take no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import TopologyError
from penstock.operators.asynchronous import MapAsync, MapValuesAsync, ProcessAsync
from penstock.operators.processors import ProcessorOperator
from penstock.operators.shared import AtomicProcessing
from penstock.operators.tables import TableTransformValues
from penstock.timing import Duration, duration_ms
from penstock.topology import ProcessorNode, Topology

_WITH_SETUP = (ProcessorOperator, AtomicProcessing, TableTransformValues)


class FakeAsync:
    """An asynchronous function with prepared answers; for `TopologyTestDriver(topology, fakes={function: fake})`.

    `answer` is the answer, or a function of the call's arguments. `delay` and `error` are a value for every call, a function of
    its arguments, or a list with one entry for each call; after the end of the list, the last delay applies and no call fails.
    If `error` is None, the call is answered. `calls` are the arguments of all calls so far, and `most_at_once` is the highest
    number of concurrent calls.

    Example:
        >>> from penstock import StreamsBuilder
        >>> from penstock.testing import TopologyTestDriver
        >>> async def score(order):
        ...     raise NotImplementedError("asks the scoring service")
        >>> builder = StreamsBuilder()
        >>> scores = builder.stream("orders", value=int).map_values_async(score, timeout="2s", retries=3, value=int)
        >>> scores.to("scores")
        >>> fake = FakeAsync(lambda order: order * 10, delay="1s", error=[ConnectionError("down"), None])
        >>> with TopologyTestDriver(builder.build(), fakes={score: fake}) as driver:
        ...     driver.input("orders").pipe(7)
        ...     driver.output("scores").values(), fake.calls
        ([70], [(7,), (7,)])
    """

    def __init__(
        self,
        answer: Any = None,
        *,
        delay: Duration | list[Duration] | Callable[..., Duration] = 0,
        error: Exception | list[Exception | None] | Callable[..., Exception | None] | None = None,
    ) -> None:
        self._answer = answer
        self._delay = _in_turn(delay, delay[-1] if isinstance(delay, list) else None)
        self._error = _in_turn(error, None)
        self._under_way = 0
        self.calls: list[tuple[Any, ...]] = []
        self.most_at_once: int = 0

    async def __call__(self, *arguments: Any) -> Any:
        """Record the call, wait, and answer or fail."""
        self.calls.append(arguments)
        error, delay = self._error(arguments), self._delay(arguments)
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            await asyncio.sleep(duration_ms(delay, "delay") / 1000)
        finally:
            self._under_way -= 1
        if error is not None:
            raise error
        return self._answer(*arguments) if callable(self._answer) else self._answer


def _in_turn(given: Any, afterwards: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function that gives each call its value: the same for all, by its arguments, or the next of a list."""
    if callable(given):
        return lambda arguments: given(*arguments)
    if isinstance(given, list):
        following = iter(given)
        return lambda arguments: next(following, afterwards)
    return lambda arguments: given


def checked_fakes(
    fakes: Mapping[Callable[..., Any], Callable[..., Any]], topology: Topology
) -> Mapping[Callable[..., Any], Callable[..., Any]]:
    """Return the fakes; raise if one replaces a function that the topology does not call."""
    operators = [node.operator for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    calls = [operator.call for operator in operators if isinstance(operator, (MapAsync, MapValuesAsync, ProcessAsync))]
    functions = [function for call in calls for function in (call.function, call.setup)]
    functions += [operator.setup for operator in operators if isinstance(operator, _WITH_SETUP)]
    known = [function for function in functions if function is not None]
    for function in fakes:
        if function not in known:
            names = ", ".join(getattr(each, "__qualname__", repr(each)) for each in known) or "none"
            raise TopologyError(
                f"fakes= replaces {function!r}, which no asynchronous verb and no setup= uses. They use: {names}."
            )
    return fakes
