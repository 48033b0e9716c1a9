"""Reads of lanes on other hosts: a server per host, and an engine that reads through it."""
