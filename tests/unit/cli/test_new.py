"""`penstock new`: the project it creates is tested, clean, and runs as its own page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.admin import health
from penstock.cli.new import create_project
from penstock.config import Config
from penstock.errors import ConfigError
from tests.unit.cli.calling import call


@pytest.fixture
def project(tmp_path: Path) -> Path:
    create_project("shop", tmp_path)
    return tmp_path / "shop"


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], cwd=project, capture_output=True, text=True, check=False)


def test_it_creates_all_files(tmp_path: Path) -> None:
    created = create_project("shop", tmp_path)
    files = {path.relative_to(tmp_path / "shop") for path in (tmp_path / "shop").rglob("*") if path.is_file()}
    assert files == set(created)
    assert {str(path) for path in files} == {
        ".dockerignore",
        ".github/workflows/ci.yml",
        ".gitignore",
        "Dockerfile",
        "README.md",
        "app.py",
        "data/orders.jsonl",
        "deploy/kubernetes.yaml",
        "penstock.toml",
        "pyproject.toml",
        "requirements.txt",
        "test_app.py",
    }


@pytest.mark.slow  # starts pytest, ruff and the command line once each
def test_its_tests_pass_it_is_clean_and_it_can_be_tried(project: Path) -> None:
    tested = run(project, "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout
    for check in (["check"], ["format", "--check"]):
        done = run(project, "ruff", *check, "--no-cache", ".")
        assert done.returncode == 0, done.stdout
    tried = run(project, "penstock.cli", "try", "app.py", "--input", "orders=data/orders.jsonl", "--json")
    assert tried.returncode == 0, tried.stderr
    totals = {row["key"]: row["value"] for row in json.loads(tried.stdout)["stores"]["totals"]}
    assert totals == {"ann": {"orders": 2, "amount": 20.0}, "bob": {"orders": 2, "amount": 43.0}}


def test_the_project_bears_its_name_everywhere(project: Path) -> None:
    texts = {path.name: path.read_text() for path in project.rglob("*") if path.is_file()}
    assert 'App("shop", builder.build())' in texts["app.py"]
    assert texts["requirements.txt"] == f"penstock-streams=={penstock.__version__}\n"
    assert texts["kubernetes.yaml"].count("name: shop") == 4
    assert "image: shop:1" in texts["kubernetes.yaml"]
    assert "python-version: ${{ matrix.python }}" in texts["ci.yml"]
    assert not [name for name, text in texts.items() if re.search(r"\$(name|version|distribution)\b", text)]


def test_its_settings_are_valid(project: Path) -> None:
    found = Config.load(project / "penstock.toml", environment={})
    assert (found.engine, found.kafka["bootstrap.servers"]) == ("local", "localhost:9092")
    manifest = (project / "deploy/kubernetes.yaml").read_text() + (project / "Dockerfile").read_text()
    environment = dict.fromkeys(re.findall(r"PENSTOCK_[A-Z_]+", manifest), "json")
    assert len(environment) == 3
    found = Config.load(project / "penstock.toml", environment=environment)
    assert (found.log_format, str(found.state_dir), found.kafka["bootstrap.servers"]) == ("json",) * 3


def test_it_runs_on_a_broker_without_topics_as_its_page_says(project: Path) -> None:
    page = (project / "README.md").read_text()
    [command] = re.findall(r"`(PENSTOCK_\S+(?: PENSTOCK_\S+)*) penstock run app\.py`", page)
    found = Config.load(project / "penstock.toml", environment=dict(each.split("=") for each in command.split()))
    assert (found.create_topics, found.engine, found.kafka["bootstrap.servers"]) == (True, "local", "localhost:9092")
    asked = re.search(r"`penstock query --store (\w+) --key", page)
    assert asked is not None
    assert f'store="{asked[1]}"' in (project / "app.py").read_text()


def test_probes_ask_for_what_the_admin_server_serves(project: Path) -> None:
    manifest = (project / "deploy/kubernetes.yaml").read_text()
    assert set(re.findall(r"127\.0\.0\.1:7070(/[\w/]+)", manifest)) == {health.LIVE, health.READY}
    assert health.LIVE in (project / "Dockerfile").read_text()


def test_the_image_does_not_run_as_root(project: Path) -> None:
    lines = (project / "Dockerfile").read_text().splitlines()
    assert "USER 10001" in lines
    assert lines.index("USER 10001") < lines.index('CMD ["penstock", "run", "app.py"]')


@pytest.mark.parametrize("name", ["", "Shop", "1shop", "shop-", "../shop", "a/b", "shop_1", "s" * 51])
def test_an_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="invalid name"):
        create_project(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text("mine")
    found = call("new", "shop")
    assert found.exit_code == 2
    assert "'shop' exists" in found.output
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["app.py"]
    assert (tmp_path / "shop" / "app.py").read_text() == "mine"


def test_the_command_says_what_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = call("new", "shop")
    assert found.exit_code == 0, found.output
    assert "penstock try app.py --input orders=data/orders.jsonl" in found.output
    assert (tmp_path / "shop" / "app.py").is_file()


def test_a_parent_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot create"):
        create_project("shop", tmp_path / "nowhere")
