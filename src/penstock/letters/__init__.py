"""Dead letters: what their headers hold, how these are written and read, and which letters can be replayed.

This room knows neither lanes nor Kafka: lanes write letters, the kafka room reads and replays them.
"""

from penstock.letters.letter import (
    LONGEST_MESSAGE,
    LONGEST_TRACE,
    REPLAY_NODE,
    SIZE_HEADER,
    Letter,
    attempts,
    failure_headers,
    replay_headers,
    replayed_into,
    without_replay_node,
)
from penstock.letters.replay import TOO_OFTEN, Done, Ledger, Refused, Replay, Rules, Target, judged
from penstock.letters.selection import Choice, Group, Span, grouped

__all__ = [
    "LONGEST_MESSAGE",
    "LONGEST_TRACE",
    "REPLAY_NODE",
    "SIZE_HEADER",
    "TOO_OFTEN",
    "Choice",
    "Done",
    "Group",
    "Ledger",
    "Letter",
    "Refused",
    "Replay",
    "Rules",
    "Span",
    "Target",
    "attempts",
    "failure_headers",
    "grouped",
    "judged",
    "replay_headers",
    "replayed_into",
    "without_replay_node",
]
