"""The measurements: throughput, latency, start, restore, growth, idling. All are made from outside, alike for all sides."""
