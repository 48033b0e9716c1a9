"""The same topologies and inputs through the test driver, through epochs in one process, and through Spark and a broker.

Run it with `python -m verification.integration`. A difference from the test driver is a bug. Not installed and not for users.
"""
