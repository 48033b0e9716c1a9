"""The stream of epochs, as far as it can be seen without Spark."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any
from unittest.mock import MagicMock

from penstock.spark.stream import EpochStream


class Application:
    """What a running application has open."""

    def on_batch(self, frame: Any, ends: Mapping[Any, int]) -> None:
        """Take a batch."""


def test_a_stream_that_was_stopped_holds_on_to_nothing() -> None:
    """The JVM does not forget its callbacks: an application that has ended must not stay open through them."""
    application = Application()
    is_there = weakref.ref(application)
    stream = EpochStream(MagicMock(), {}, {("a", 0): 3}, application.on_batch, 100, 10)
    stream.stop()
    del application
    gc.collect()
    assert is_there() is None
    stream._on_batch(MagicMock(), {})
