"""Penstock with each version of PySpark that is supported."""
