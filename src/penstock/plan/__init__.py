"""A plan is a function of a topology: stages between exchanges."""

from penstock.plan.planner import fingerprint, plan
from penstock.plan.stages import Plan, Stage

__all__ = ["Plan", "Stage", "fingerprint", "plan"]
