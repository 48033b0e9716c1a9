"""The plan of a topology: stages between exchanges."""

from penstock.topology.plan.changes import Changes, Decision, Verdict, source_changes, store_changes
from penstock.topology.plan.compatibility import (
    TopologyFacts,
    convertible,
    decode_facts,
    encode_facts,
    facts,
    incompatibilities,
    migrating,
    migrations,
    remembered,
    renamed,
    renamed_stores,
    renames,
    renaming,
)
from penstock.topology.plan.layouts import UNLOGGED, layout
from penstock.topology.plan.planner import fingerprint, plan
from penstock.topology.plan.stages import Plan, Stage

__all__ = [
    "UNLOGGED",
    "Changes",
    "Decision",
    "Plan",
    "Stage",
    "TopologyFacts",
    "Verdict",
    "convertible",
    "decode_facts",
    "encode_facts",
    "facts",
    "fingerprint",
    "incompatibilities",
    "layout",
    "migrating",
    "migrations",
    "plan",
    "remembered",
    "renamed",
    "renamed_stores",
    "renames",
    "renaming",
    "source_changes",
    "store_changes",
]
