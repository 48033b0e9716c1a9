"""Whether an application can be run by people who did not write it: measured and checked on the real thing."""
