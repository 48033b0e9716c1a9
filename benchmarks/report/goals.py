"""The goals, each with its figure from a report: a function of the report's content, and of nothing else.

A ratio is Penstock's figure divided by the rival's. A goal that was not measured has neither a figure nor a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PENSTOCK, COLUMNS, KAFKA_STREAMS, SPARK, QUIX = "penstock", "penstock-columns", "kafka-streams", "spark", "quix"
THROUGHPUT = "ABCDEFGH"
AGAINST_KAFKA_STREAMS = "BCDF"
LAMBDAS_GOAL, COLUMNS_GOAL, QUIX_GOAL = 1.5, 2.5, 3.0
SPARK_GOALS = {"A": 0.9, "B": 1.0, "C": 1.0}
LATENCY_GOALS = {"no exchange": 1.3, "two exchanges": 0.6}
FLAT = 0.2

Content = Mapping[str, Any]
Figure = float | None


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound of a figure."""

    name: str
    bound: float
    is_at_least: bool
    measured: Callable[[Content], Figure]
    is_strict: bool = False

    @property
    def text(self) -> str:
        """The bound in words."""
        words = ("more than" if self.is_strict else "at least") if self.is_at_least else "below" if self.is_strict else "at most"
        return f"{words} {self.bound:g}"

    def is_reached(self, figure: float) -> bool:
        """Whether the figure is within the bound."""
        if figure == self.bound:
            return not self.is_strict
        return (figure > self.bound) == self.is_at_least


def goals(content: Content) -> dict[str, dict[str, Any]]:
    """Every goal by name, with the figure of this report."""
    found: dict[str, dict[str, Any]] = {}
    for goal in GOALS:
        figure = goal.measured(content)
        found[goal.name] = {
            "goal": goal.text,
            "measured": None if figure is None else float(f"{figure:.3g}"),
            "reached": None if figure is None else goal.is_reached(figure),
        }
    return found


def _at(content: Content, *path: str) -> Figure:
    at: Any = content
    for name in path:
        if not isinstance(at, Mapping) or name not in at:
            return None
        at = at[name]
    return float(at) if isinstance(at, (int, float)) else None


def _ratio(ours: Figure, theirs: Figure) -> Figure:
    return ours / theirs if ours is not None and theirs else None


def _throughput(content: Content, letter: str, side: str, figure: str = "per_s") -> Figure:
    return _at(content, "throughput", letter, side, "median", figure)


def _against(letter: str, ours: tuple[str, ...], theirs: str, figure: str = "per_s") -> Callable[[Content], Figure]:
    """The ratio of the best of our sides to theirs."""

    def measured(content: Content) -> Figure:
        found = [value for side in ours if (value := _throughput(content, letter, side, figure)) is not None]
        return _ratio(max(found), _throughput(content, letter, theirs, figure)) if found else None

    return measured


def _compared(*path: str, figure: str, theirs: str = KAFKA_STREAMS) -> Callable[[Content], Figure]:
    """The ratio of a median at `path`, `side`."""

    def measured(content: Content) -> Figure:
        ours, rival = (_at(content, *path, side, "median", *figure.split(".")) for side in (PENSTOCK, theirs))
        return _ratio(ours, rival)

    return measured


def _reading(*path: str) -> Callable[[Content], Figure]:
    return lambda content: _at(content, *path)


def _growth(of: str) -> Callable[[Content], Figure]:
    """How much more the most expensive record costs than the cheapest, over all sizes."""

    def measured(content: Content) -> Figure:
        sizes = content.get("growth", {}).get(of, {})
        costs = [cost for size in sizes if (cost := _at(sizes, size, PENSTOCK, "median", "cpu_us_per_record")) is not None]
        return max(costs) / min(costs) - 1 if len(costs) > 1 else None

    return measured


def _all() -> Iterator[Goal]:
    for letter in AGAINST_KAFKA_STREAMS:
        yield Goal(
            f"throughput {letter}, lambdas, against Kafka Streams",
            LAMBDAS_GOAL,
            True,
            _against(letter, (PENSTOCK,), KAFKA_STREAMS),
        )
        yield Goal(
            f"throughput {letter}, columns, against Kafka Streams",
            COLUMNS_GOAL,
            True,
            _against(letter, (COLUMNS,), KAFKA_STREAMS),
        )
    for letter, bound in SPARK_GOALS.items():
        name = f"throughput {letter}, the better of lambdas and columns, against Spark"
        yield Goal(name, bound, True, _against(letter, (PENSTOCK, COLUMNS), SPARK))
    for letter in THROUGHPUT:
        yield Goal(f"throughput {letter}, lambdas, against Quix Streams", QUIX_GOAL, True, _against(letter, (PENSTOCK,), QUIX))
    for exchanges, bound in LATENCY_GOALS.items():
        p95 = _compared("latency", exchanges, "1000", figure="after_60_s.p95")
        yield Goal(f"p95 at 1,000/s, {exchanges}, against Kafka Streams", bound, False, p95)
    yield Goal(
        "start to first commit, warm archive, against Kafka Streams", 2.0, False, _compared("start", figure="with_archive_s")
    )
    yield Goal(
        "cold restore of 1 M keys, start included, against Kafka Streams",
        1.0,
        False,
        _compared("restore", "1000000", figure="cold_start_s"),
    )
    for letter in "BD":
        cpu = _against(letter, (PENSTOCK,), KAFKA_STREAMS, "cpu_s_per_million_total")
        memory = _against(letter, (PENSTOCK,), KAFKA_STREAMS, "peak_pss_mb")
        yield Goal(f"CPU time per record, {letter}, broker included, against Kafka Streams", 1.0, False, cpu, is_strict=True)
        yield Goal(f"memory of all processes, {letter}, against Kafka Streams", 1.5, False, memory)
    idle = _reading("idle", PENSTOCK, "median", "cpu_percent")
    busy = _compared("latency", "no exchange", "1000", figure="after_60_s.cpu_percent")
    yield Goal("idle CPU, % of a core", 3.0, False, idle, is_strict=True)
    yield Goal("CPU at 1,000 records/s, against Kafka Streams", 1.5, False, busy)
    yield Goal("timers per second and core", 100_000, True, _reading("timers", "timers_per_s"))
    yield Goal("async records per second", 5_000, True, _reading("calls", "warm_per_s"))
    yield Goal("loss by 1,000 queries/s", 0.05, False, _reading("queries", "loss"), is_strict=True)
    for of in ("keys", "partitions", "time"):
        yield Goal(f"growth of the cost per record in {of}", FLAT, False, _growth(of))


GOALS = tuple(_all())
