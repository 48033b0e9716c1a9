"""Testing without a broker, a JVM or Spark."""

from penstock.testing.context import Forwarded, MockProcessorContext, Scheduled
from penstock.testing.driver import TopologyTestDriver
from penstock.testing.fakes import FakeAsync
from penstock.testing.topics import InputTopic, OutputTopic

__all__ = ["FakeAsync", "Forwarded", "InputTopic", "MockProcessorContext", "OutputTopic", "Scheduled", "TopologyTestDriver"]
