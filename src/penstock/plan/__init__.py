"""The plan of a topology: stages between exchanges."""

from penstock.plan.changes import Changes, Decision, Verdict, source_changes, store_changes
from penstock.plan.compatibility import TopologyFacts, decode_facts, encode_facts, facts, incompatibilities, remembered
from penstock.plan.layouts import layout
from penstock.plan.planner import fingerprint, plan
from penstock.plan.stages import Plan, Stage

__all__ = [
    "Changes",
    "Decision",
    "Plan",
    "Stage",
    "TopologyFacts",
    "Verdict",
    "decode_facts",
    "encode_facts",
    "facts",
    "fingerprint",
    "incompatibilities",
    "layout",
    "plan",
    "remembered",
    "source_changes",
    "store_changes",
]
