"""How a store keeps ready aggregates that follow from more than their results: as documents of their states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from penstock.errors import SerializationError
from penstock.expressions.aggregation import STATES, State, results_of
from penstock.expressions.nodes import Function
from penstock.records import Results
from penstock.serdes.serde import Serde
from penstock.serdes.wrappers import WrappingSerde


class AggregatesSerde(WrappingSerde[Results]):
    """Writes states and reads results; `stateful` names the aggregates that keep more than their result, with their function.

    A state is a list: the count and the sum of a mean, the largest values, all different values.
    """

    def __init__(self, inner: Serde[Any], stateful: Mapping[str, Function]) -> None:
        super().__init__(inner)
        self.stateful: tuple[tuple[str, str], ...] = tuple((name, function.value) for name, function in sorted(stateful.items()))

    @property
    def _states(self) -> dict[str, State]:
        return {name: STATES[Function(function)] for name, function in self.stateful}

    @cached_property
    def serialize(self) -> Callable[[Results], bytes]:
        """Writes a document of states."""
        write, stateful = self.inner.serialize, self._states

        def serialize(results: Results) -> bytes:
            if not isinstance(results, Results):
                names = ", ".join(stateful)
                raise SerializationError(f"Only agg can write this store: {names} cannot be continued from {results!r:.100}.")
            return write({name: list(state) if name in stateful else state for name, state in results.states.items()})

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], Results]:
        """Reads states, and returns what follows from them."""
        read, stateful, results = self.inner.deserialize, self._states, results_of(self._states)

        def deserialize(data: bytes) -> Results:
            document = read(data)
            try:
                states = document | {name: state.restored(document[name]) for name, state in stateful.items()}
                return results(states)
            except (TypeError, ValueError, KeyError, ArithmeticError) as error:
                raise SerializationError(f"Not the states of {', '.join(stateful)}: {error!r}.") from error

        return deserialize
