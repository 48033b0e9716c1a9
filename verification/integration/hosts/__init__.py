"""The hosts of a scenario: the test driver, which is right by definition, and those that must agree with it."""
