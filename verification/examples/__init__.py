"""The examples on a real broker: an application that a user would run writes what the test driver writes for the same input."""
