"""Real parts to test against: a Kafka broker or three, a network that can fail, and what one asks of topics.

Not installed and not for users; the jars and the proxy come with `make setup`.
"""
