"""How a method of Kafka Streams is judged: equivalent to a call in Penstock, never to be mapped, or missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

EVERY_CASE = "every case"
"""For what every conformance case exercises."""


@dataclass(frozen=True)
class Method:
    """A public method, static factory or constructor (`new`) of Kafka Streams; types by their simple names."""

    owner: str
    name: str
    parameters: tuple[str, ...]
    returns: str
    static: bool
    deprecated: bool

    @property
    def signature(self) -> str:
        """The form in which a Java programmer would look it up."""
        simple = self.owner.rpartition(".")[2]
        name = f"new {simple}" if self.name == "new" else self.name
        return f"{name}({', '.join(self.parameters)})"

    @property
    def is_object_protocol(self) -> bool:
        """Whether every Java object has it."""
        return (self.name, self.parameters) in {("equals", ("Object",)), ("hashCode", ()), ("toString", ())}


Arguments = Mapping[str, "str | tuple[str, ...]"]
"""Penstock's equivalent of a Java parameter of a type: `predicate`, `name=`, or several, `mapper, with_key=True`.

A tuple serves a type that occurs repeatedly, in order.
"""


@dataclass(frozen=True)
class To:
    """Equivalent to `target`, a dotted name, with the arguments for the method's parameters; `fixed` ones are in each call.

    `bare` is for names that are passed rather than called.
    """

    target: str
    arguments: Arguments = field(default_factory=dict)
    verbs: tuple[str, ...] = ()
    fixed: str = ""
    note: str = ""
    bare: bool = False


@dataclass(frozen=True)
class Never:
    """Without an equivalent in Penstock, for a reason that a user of Kafka Streams would accept."""

    reason: str


@dataclass(frozen=True)
class Missing:
    """A capability that Penstock lacks, and the form it could have."""

    suggestion: str


Outcome = To | Never | Missing


@dataclass(frozen=True)
class Rule:
    """An outcome for the methods of these names (separated by spaces) that have at least these parameters."""

    names: str
    outcome: Outcome
    when: tuple[str, ...] = ()

    def covers(self, method: Method) -> bool:
        """Whether the rule covers this method."""
        return method.name in self.names.split() and not Counter(self.when) - Counter(method.parameters)


DEPRECATED = Never("deprecated in Kafka Streams 4.3.1")
OBJECT_PROTOCOL = Never("Java's object protocol (`equals`, `hashCode`, `toString`): Python has its own")

Rules = Mapping[str, tuple[Rule, ...]]


def judge(method: Method, rules: Rules) -> Outcome:
    """The outcome for a method: the first rule of its class that covers it."""
    if method.is_object_protocol:
        return OBJECT_PROTOCOL
    if method.deprecated:
        return DEPRECATED
    for rule in rules.get(method.owner, ()):
        if rule.covers(method):
            return rule.outcome
    return Missing("no rule covers it")
