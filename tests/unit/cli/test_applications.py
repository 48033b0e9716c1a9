"""Applications and settings from the command line, and the errors for invalid ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.applications import load_app, load_config, overrides
from penstock.errors import ConfigError

APP = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
builder.stream("in", value=str).group_by_key().count(store="s")
topology = builder.build()
app = App("first", topology)
other = App("second", topology)
number = 7
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    (tmp_path / "penstock_cli_sample.py").write_text(APP)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


class TestApplications:
    def test_a_file_is_given_with_or_without_its_object(self, directory: Path) -> None:
        assert load_app("penstock_cli_sample.py").application_id == "first"
        assert load_app("penstock_cli_sample.py:other").application_id == "second"
        assert load_app(f"{directory}/penstock_cli_sample.py:app").application_id == "first"

    def test_a_module_of_this_directory_is_imported_by_its_dotted_name(self, directory: Path) -> None:
        package = directory / "penstock_cli_package"
        package.mkdir()
        (package / "inner.py").write_text(APP)
        assert load_app("penstock_cli_sample").application_id == "first"
        assert load_app("penstock_cli_package.inner:other").application_id == "second"

    def test_a_file_is_imported_by_its_own_name_with_its_neighbours(self, directory: Path) -> None:
        inner = directory / "inner"
        inner.mkdir()
        (inner / "penstock_cli_neighbour.py").write_text(APP)
        (inner / "penstock_cli_main.py").write_text("from penstock_cli_neighbour import app\n")
        assert load_app("inner/penstock_cli_main.py").application_id == "first"
        assert "penstock_cli_main" in sys.modules

    def test_a_file_in_another_directory_wins_over_one_of_the_same_name_here(self, directory: Path) -> None:
        inner = directory / "inner"
        inner.mkdir()
        (inner / "penstock_cli_sample.py").write_text(APP.replace("first", "inner"))
        assert load_app("inner/penstock_cli_sample.py").application_id == "inner"

    @pytest.mark.parametrize(
        ("where", "said"),
        [
            ("penstock_cli_sample.py:nobody", "penstock_cli_sample.py has no 'nobody'. Applications there: app, other."),
            (
                "penstock_cli_sample.py:number",
                "'number' in penstock_cli_sample.py is of type int, not App. Applications there: app, other.",
            ),
            ("nowhere.py:app", "There is no file 'nowhere.py'."),
            ("penstock_cli_nowhere:app", "There is no module 'penstock_cli_nowhere'."),
        ],
    )
    def test_an_unknown_application_is_an_error_that_lists_the_known_ones(self, directory: Path, where: str, said: str) -> None:
        with pytest.raises(ConfigError) as raised:
            load_app(where)
        assert str(raised.value).startswith(said)

    def test_the_error_for_a_file_without_an_application_says_what_to_add(self, directory: Path) -> None:
        (directory / "penstock_cli_empty.py").write_text("")
        with pytest.raises(ConfigError, match=r"has no \'app\'. Add app = App\(…\) at its top level."):
            load_app("penstock_cli_empty.py")

    def test_a_file_with_the_name_of_another_module_is_refused(self, directory: Path) -> None:
        (directory / "json.py").write_text(APP)
        with pytest.raises(ConfigError, match="another module is called 'json'"):
            load_app("json.py:app")

    def test_a_missing_import_of_the_application_is_raised_unchanged(self, directory: Path) -> None:
        (directory / "penstock_cli_broken.py").write_text("import penstock_cli_missing_thing\n")
        with pytest.raises(ModuleNotFoundError, match="penstock_cli_missing_thing"):
            load_app("penstock_cli_broken.py")


class TestSettings:
    def test_numbers_durations_and_tables(self) -> None:
        given = ["lanes=2", "epoch_interval=50ms", "kafka.bootstrap.servers=b:1", "spark.master=local[2]", "spark.x.y=1"]
        assert overrides(given) == {
            "lanes": 2,
            "epoch_interval": "50ms",
            "kafka": {"bootstrap.servers": "b:1"},
            "spark": {"master": "local[2]", "spark.x.y": "1"},
        }

    def test_a_flag_overrides_the_environment_which_overrides_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "own.toml"
        path.write_text('lanes = 1\nshards = 8\n[kafka]\n"bootstrap.servers" = "b:1"\n')
        monkeypatch.setenv("PENSTOCK_LANES", "2")
        assert load_config(path, []).lanes == 2
        found = load_config(path, ["lanes=3"])
        assert (found.lanes, found.shards, found.kafka["bootstrap.servers"]) == (3, 8, "b:1")

    @pytest.mark.parametrize("pair", ["lanes", "=2"])
    def test_an_invalid_setting_is_refused(self, pair: str) -> None:
        with pytest.raises(ConfigError, match="--set: expected name=value"):
            overrides([pair])

    @pytest.mark.parametrize("name", ["kafka.sasl.password", "admin_token", "kafka.ssl.key.password"])
    def test_a_plain_text_secret_is_refused_and_not_printed(self, name: str) -> None:
        with pytest.raises(ConfigError, match="Write env:NAME or file:PATH") as raised:
            overrides([f"{name}=hunter2"])
        assert "hunter2" not in str(raised.value)
        assert overrides([f"{name}=env:SECRET"])
