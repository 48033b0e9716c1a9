"""Concurrent calls to other systems: their settings, and the event loop and threads of a process that make them."""

from penstock.calls.call import Call, CircuitBreaker, Request, ResultCache, is_async
from penstock.calls.caller import Caller, Callers
from penstock.calls.loop import LoopThread
from penstock.calls.work import Failed

__all__ = ["Call", "Caller", "Callers", "CircuitBreaker", "Failed", "LoopThread", "Request", "ResultCache", "is_async"]
