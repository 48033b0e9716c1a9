"""(C) Word count: lines of ten words, each word a record under a new key. Frequent words are frequent, as in real text."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from benchmarks.workloads.results import LastOfEachKey
from benchmarks.workloads.workload import SEED, START_MS, Expected, Input

VOCABULARY = 20_000
WORDS_OF_LINE = 10
CHUNK = 1_000
"""Lines that are drawn at once."""


@dataclass(frozen=True, slots=True)
class Words:
    """The n-th most frequent word has a weight of 1/n."""

    topology: str = "words"
    title: str = "word count with re-key, 10 words per record"
    sources: tuple[str, ...] = ("lines",)
    records: int = 1_200_000
    is_exchanged: bool = True
    needs_tables_first: bool = False

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The lines, and the count of every word."""
        expected = LastOfEachKey(int)
        words = [f"word{number}" for number in range(VOCABULARY)]
        weights = list(accumulate(1 / (rank + 1) for rank in range(VOCABULARY)))

        def generate() -> Iterator[Input]:
            chance = random.Random(SEED)
            counts: Counter[str] = Counter()
            for first in range(0, records, CHUNK):
                lines = min(CHUNK, records - first)
                drawn = chance.choices(words, cum_weights=weights, k=lines * WORDS_OF_LINE)
                counts.update(drawn)
                for line in range(lines):
                    text = " ".join(drawn[line * WORDS_OF_LINE : (line + 1) * WORDS_OF_LINE])
                    number = first + line
                    yield Input("lines", f"k{number}", text.encode(), START_MS + number // 10)
            expected.values.update(counts)

        return generate(), expected
