"""Everything but Spark runs where pyspark, py4j and pandas are not installed, as from `deploy/requirements-local.lock`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent
ABSENT = """
from importlib import metadata
from importlib.machinery import FileFinder

absent = {"pyspark", "py4j", "pandas"}
find, find_all = FileFinder.find_spec, metadata.MetadataPathFinder.find_distributions


def find_spec(self, name, target=None):
    return None if name.partition(".")[0] in absent else find(self, name, target)


def find_distributions(*arguments):
    return (one for one in find_all(*arguments) if one.metadata["Name"] not in absent)


FileFinder.find_spec = find_spec
metadata.MetadataPathFinder.find_distributions = find_distributions
"""
"""Python runs a module of this name before anything else, in every process."""

LOAD_ALL = """
import json, pkgutil
from importlib import import_module
import penstock

missing = {}
for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not module.name.endswith("__main__") and not module.name.startswith("penstock.cli.scaffold."):
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            missing[module.name] = error.name
print(json.dumps(missing))
"""
OF_SPARK = (
    "penstock.spark.",
    "penstock.runtime.hosting.on_spark",
    "penstock.runtime.hosting.spark_work",
    "penstock.cli.cluster_checks",
)
"""What only `engine = spark` and `doctor --cluster` load."""

APPLICATION = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("lines", value=str).flat_map_values(str.split).group_by(lambda _, word: word)
words.count(store="words").to_stream().to("counts", value=int)
app = App("words", builder.build())
"""
DRIVEN = """
from app import app
from penstock.testing import TopologyTestDriver

with TopologyTestDriver(app.topology) as driver:
    driver.input("lines").pipe("to be or not to be")
    print(dict(driver.output("counts").table()))
"""
IN_SLOTS = """
from app import app
from penstock.config import Config
from penstock.handlers import ErrorHandlers
from penstock.runtime.hosting.engine import opening_hosts
from penstock.runtime.hosting.set_up import TaskSetUp
from penstock.history.truth import program_of

def nothing():
    pass

config = Config(kafka={"bootstrap.servers": "host:1"}, engine="local", lanes=2)
program = program_of("words", app.topology, ErrorHandlers(), config, incarnation="1")
tasks = TaskSetUp(nothing, 60, {}, lambda: None)
hosting = opening_hosts(config, program, app.topology).host(program, tasks)
hosting.engine.start()
print(hosting.engine.whereabouts)
hosting.close()
"""
CURE = "Install pyspark>=4.2,<4.4, or set engine = local, which runs without Spark."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "sitecustomize.py").write_text(ABSENT, encoding="utf-8")
    (tmp_path / "app.py").write_text(APPLICATION, encoding="utf-8")
    return tmp_path


def run(
    place: Path, *arguments: str, source: Path = SOURCE, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    paths = [str(place), str(source.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "300", **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=120)


def printed(place: Path, program: str) -> str:
    done = run(place, "-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout


def missing_by_module(place: Path, source: Path = SOURCE) -> dict[str, str]:
    """The modules that cannot be imported, apart from those that are only for Spark; each with what it lacks."""
    done = run(place, "-c", LOAD_ALL, source=source)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return {module: name for module, name in found.items() if not module.startswith(OF_SPARK)}


def test_they_are_not_there(place: Path) -> None:
    program = "from importlib.util import find_spec; print([find_spec(name) for name in ('pyspark', 'py4j', 'pandas')])"
    assert printed(place, program) == "[None, None, None]\n"


def test_every_module_that_is_not_for_spark_alone_can_be_imported(place: Path) -> None:
    assert missing_by_module(place) == {}


@pytest.mark.slow  # it imports everything once more
@pytest.mark.parametrize("planted", ["import pyspark", "from pandas import Series"])
def test_a_planted_import_is_found(place: Path, planted: str) -> None:
    source = Path(shutil.copytree(SOURCE, place / "planted" / "penstock"))
    module = source / "engines" / "serving.py"
    module.write_text(f"{module.read_text(encoding='utf-8')}\n\n{planted}\n", encoding="utf-8")
    assert "penstock.engines.serving" in missing_by_module(place, source)


def test_the_test_driver_runs(place: Path) -> None:
    assert printed(place, DRIVEN) == "{'to': 2, 'be': 2, 'or': 1, 'not': 1}\n"


def test_slots_of_the_local_engine_start(place: Path) -> None:
    assert "forked processes" in printed(place, IN_SLOTS)


@pytest.mark.slow  # each is a process that imports what it needs; `plan` waits for brokers that are not there
@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["--help"], 0, "doctor"),
        (["describe", "app.py:app"], 0, "words"),
        (["new", "shop"], 0, ""),
        (["run", "app.py:app"], 2, f"engine = spark needs pyspark and py4j, which cannot be found. {CURE}"),
        (["plan", "app.py:app"], 22, ""),
    ],
)
def test_commands_run(place: Path, arguments: list[str], code: int, output: str) -> None:
    variables = {"PENSTOCK_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PENSTOCK_BROKER_TIMEOUT": "2s"}
    done = run(place, "-m", "penstock.cli", *arguments, variables=variables)
    assert done.returncode == code, done.stdout + done.stderr
    assert output in done.stdout + done.stderr


@pytest.mark.slow  # it waits for brokers that are not there
@pytest.mark.parametrize(("engine", "level"), [("local", "ok"), ("spark", "fail")])
def test_doctor_misses_spark_only_where_it_is_needed(place: Path, engine: str, level: str) -> None:
    variables = {"PENSTOCK_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PENSTOCK_ENGINE": engine, "PATH": "", "JAVA_HOME": ""}
    done = run(place, "-m", "penstock.cli", "doctor", "--json", variables=variables)
    found = {each["what"]: each for each in json.loads(done.stdout)}
    assert [found["python"]["level"], found["java"]["level"]] == [level, level]
    assert "without pyspark" in found["python"]["found"]
