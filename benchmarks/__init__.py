"""Measurements: each prints its figures last and writes reports/<name>.json."""
