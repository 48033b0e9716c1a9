"""Sensors that fall silent: an alert five minutes after the last reading, another one when the sensor is back.

A report at every full hour says how many sensors are silent, whether or not there are readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add

from penstock import (
    App,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Timer,
    bounded_disorder,
    key_value_store,
    log_and_continue,
    shared_store,
)

SILENT_MS = 5 * 60 * 1000
ALL = "all sensors"
"""The key under which silent sensors are counted."""


@dataclass(frozen=True)
class Reading:
    celsius: float


@dataclass(frozen=True)
class Alert:
    state: str
    last_reading: int


@dataclass(frozen=True)
class Report:
    silent: int


@dataclass(frozen=True)
class Sensor:
    last_reading: int
    is_silent: bool

    @property
    def silent_from(self) -> int:
        return self.last_reading + SILENT_MS


class Watch(Processor[str, Reading, str, Alert]):
    def init(self, context: ProcessorContext[str, Alert]) -> None:
        super().init(context)
        self.sensors = context.store("sensors")
        self.silent = context.store("silent")

    def process(self, record: Record[str, Reading]) -> None:
        sensor: Sensor | None = self.sensors.get(record.key)
        if sensor is not None and record.timestamp >= sensor.silent_from:
            if not sensor.is_silent:  # the timer is due, but fires between epochs, and this reading came in the same one
                self.fall_silent(record.key, sensor)
            self.silent.merge(ALL, -1)
            self.context.forward(record.with_value(Alert("back", sensor.last_reading)))
        last = max(record.timestamp, sensor.last_reading if sensor is not None else 0)
        self.sensors[record.key] = sensor = Sensor(last, is_silent=False)
        self.context.timers.event_time(at=sensor.silent_from)

    def on_timer(self, timer: Timer) -> None:
        sensor = self.sensors[timer.key]
        self.fall_silent(timer.key, sensor)
        self.sensors[timer.key] = Sensor(sensor.last_reading, is_silent=True)

    def fall_silent(self, key: str, sensor: Sensor) -> None:
        self.silent.merge(ALL, 1)
        self.context.forward(Record(key, Alert("silent", sensor.last_reading), sensor.silent_from))


class Count(Processor[str, int, str, Report]):
    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value(Report(self.context.store("silent").get(ALL) or 0)))


builder = StreamsBuilder()
builder.add_state_store(key_value_store("sensors", value=Sensor))
builder.add_state_store(shared_store("silent", value=int, merge=add))
readings = builder.stream(
    "readings",
    key=str,
    value=Reading,
    watermark=bounded_disorder("10s", idle="1m", follow_wall_clock=True),
    late=log_and_continue(),
)
readings.process(Watch, stores=["sensors", "silent"], key=str, value=Alert, name="watch").to("sensor-alerts")
hourly = builder.schedule("hourly", cron="0 * * * *")
hourly.process(Count, stores=["silent"], key=str, value=Report, name="count").to("sensor-reports")
app = App("iot-alerts", builder.build())

if __name__ == "__main__":
    app.run()
