"""The command line: run, describe, plan, reset, dead letters, query, top, doctor."""
