"""The same topologies and inputs through the test driver, through epochs in one process, and through Spark and a broker.

`python -m integration` is the door. A difference from the test driver is a bug; not installed and not for users.
"""
