"""Builds the operations that only epoch cases have, besides those of the library."""

from __future__ import annotations

from typing import Any

from verification.conformance.build import Dsl, Effects, Supplier
from verification.conformance.epochs.mutating import Mutating
from verification.conformance.epochs.typed import Typed
from verification.conformance.options import serde
from verification.conformance.spec import Op


class EpochDsl(Dsl):
    """Builds a topology; the judge's has other functions where these are what is judged."""

    def __init__(self, effects: Effects, supplier: Supplier, *, is_judge: bool = False) -> None:
        super().__init__(effects, supplier)
        self._chains: dict[str, Typed | Mutating] = {"typed": Typed(is_judge=is_judge), "mutating": Mutating(is_judge=is_judge)}

    def _own(self, verb: str, op: Op, stream: Any) -> Any:
        return self._chains[verb].chain(stream, {**op.args, "key": serde(op.args["key"]), "store": op.args["store"]["name"]})
