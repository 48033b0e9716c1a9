"""`make bench-engine`: lanes in Spark's tasks beside lanes in forked processes, and on three hosts beside one machine."""
