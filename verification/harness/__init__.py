"""Real parts to test against: one or several Kafka brokers, a network that can fail, and helpers for topics.

Not installed and not for users; `make setup` installs the jars and the proxy.
"""
