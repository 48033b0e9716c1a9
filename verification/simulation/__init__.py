"""Applications in a simulated world, decided by one seed: their results beside those of the test driver."""
