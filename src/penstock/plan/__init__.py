"""A plan is a function of a topology: stages between exchanges."""

from penstock.plan.compatibility import TopologyFacts, decode_facts, encode_facts, facts, incompatibilities, remembered
from penstock.plan.planner import fingerprint, plan
from penstock.plan.stages import Plan, Stage

__all__ = [
    "Plan",
    "Stage",
    "TopologyFacts",
    "decode_facts",
    "encode_facts",
    "facts",
    "fingerprint",
    "incompatibilities",
    "plan",
    "remembered",
]
