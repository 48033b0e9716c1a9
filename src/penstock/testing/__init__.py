"""Testing without a broker, a JVM or Spark."""

from penstock.testing.driver import TopologyTestDriver
from penstock.testing.topics import InputTopic, OutputTopic

__all__ = ["InputTopic", "OutputTopic", "TopologyTestDriver"]
