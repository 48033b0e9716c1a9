"""The whole mapping from Kafka Streams to Penstock, combined from modules that read like lists."""

from __future__ import annotations

from conformance.parity.driver import DRIVER
from conformance.parity.options import OPTIONS
from conformance.parity.processors import PROCESSORS
from conformance.parity.rules import Rules
from conformance.parity.verbs import VERBS
from conformance.parity.windows import WINDOWS

MAPPING: Rules = {**VERBS, **OPTIONS, **WINDOWS, **PROCESSORS, **DRIVER}
