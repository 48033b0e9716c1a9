"""The whole mapping from Kafka Streams to Penstock, combined from modules that read like lists."""

from __future__ import annotations

from verification.conformance.parity.driver import DRIVER
from verification.conformance.parity.options import OPTIONS
from verification.conformance.parity.processors import PROCESSORS
from verification.conformance.parity.rules import Rules
from verification.conformance.parity.verbs import VERBS
from verification.conformance.parity.windows import WINDOWS

MAPPING: Rules = {**VERBS, **OPTIONS, **WINDOWS, **PROCESSORS, **DRIVER}
