"""Why operators drop records: the reasons that counters report."""

NULL_KEY = "null key"
NULL_KEY_OR_VALUE = "null key or value"
EXPIRED_WINDOW = "expired window"
DUPLICATE = "duplicate"
