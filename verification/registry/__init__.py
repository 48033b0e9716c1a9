"""Serdes with a schema registry against a real one, and their bytes against Java's."""
