"""What is begun before a start imports anything else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from penstock import App, Plugin, StreamsBuilder, Topology
from penstock.config import Config
from penstock.errors import ConfigError
from penstock.runtime.hooks import Hooks
from penstock.runtime.hosting import ahead as module
from penstock.runtime.hosting.ahead import begin
from penstock.spark import context

HEAVY = """
import sys
import penstock.app
print([name for name in sys.argv[1:] if name in sys.modules])
import penstock.spark.context
print([name for name in sys.argv[1:] if name in sys.modules])
"""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is begun, instead of processes."""
    made: list[Any] = []
    monkeypatch.setattr(module, "start_ahead", made.append)
    monkeypatch.setattr(context, "start_jvm_ahead", lambda *arguments, has_frames: made.append((*arguments, has_frames)))
    return made


def config(**settings: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers="localhost:9092", **settings)


def topology(**options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str, **options).to("out", value=str)
    return builder.build()


def test_it_is_what_the_engine_needs(begun: list[Any]) -> None:
    begin(config(engine="local"), topology(), print, has_jvm=True)
    begin(config(spark={"master": "local[3]"}), topology(), print, has_jvm=True)
    assert begun == [print, ({"master": "local[3]"}, print, False)]


def test_the_jvm_may_have_to_wait(begun: list[Any]) -> None:
    begin(config(), topology(), print, has_jvm=False)
    assert begun == []


class Preparing(Plugin):
    """Sets what Spark's JVM takes from the environment, for example."""

    def pre_start(self, running: Any) -> None:
        """Do it."""


@pytest.mark.parametrize(("plugins", "prepare"), [([], False), ([Plugin()], False), ([Plugin(), Preparing()], True)])
def test_it_waits_for_plug_ins_that_prepare_something(plugins: list[Plugin], prepare: bool) -> None:
    assert Hooks(plugins).prepare is prepare


@pytest.mark.parametrize(("plugins", "has_jvm"), [([], True), ([Preparing()], False)])
def test_an_application_begins_with_it(monkeypatch: pytest.MonkeyPatch, plugins: list[Plugin], has_jvm: bool) -> None:
    def begin(*_: Any, **options: Any) -> None:
        raise ConfigError(str(options))

    monkeypatch.setattr("penstock.app.begin", begin)
    with pytest.raises(ConfigError, match=f"'has_jvm': {has_jvm}"):
        App("app", topology(), plugins=plugins).start(bootstrap_servers="localhost:9092")


def test_nothing_that_takes_long_is_imported_before() -> None:
    """Tests of topologies and the command line profit as well."""
    heavy = ["pyarrow", "numpy", "pandas", "structlog", "confluent_kafka", "cryptography"]
    done = subprocess.run([sys.executable, "-c", HEAVY, *heavy], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["[]", "[]"]
