"""A lane walks an epoch: merge, operators, caches, punctuators; hosted by the test driver and by Spark tasks alike.

Each module is imported by its own name: `epoch` needs Arrow, and a test driver that starts in milliseconds does not.
"""
