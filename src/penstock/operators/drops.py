"""Why operators skip records, in the words that counters and tests use."""

NULL_KEY = "null key"
NULL_KEY_OR_VALUE = "null key or value"
EXPIRED_WINDOW = "expired window"
