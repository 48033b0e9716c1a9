"""Where a scenario can run: the test driver, which is right by definition, and the hosts that must agree with it."""
