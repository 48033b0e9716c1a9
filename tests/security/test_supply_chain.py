"""The dependencies of the package, and what it does when it is imported."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import pytest
import yaml

from tests.tidy.rules import SourceFile, product_runs_only_its_own_code
from tools.project import metadata

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "penstock"

IF_THERE = ("tomli", "pydantic", "typing_extensions")
"""Needed only by older Pythons or by type checkers, or used only if the user has installed them."""

IMPORT_ALL = """
import json, pkgutil, sys, threading

seen = []
WRITING = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.symlink", "os.link", "os.truncate", "shutil.rmtree"}
OUTSIDE = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "webbrowser.open"}


def watch(event, arguments):
    if event.startswith("socket.") and event not in {"socket.__new__", "socket.gethostname"}:
        seen.append([event, repr(arguments)])
    elif event in WRITING or event in OUTSIDE:
        seen.append([event, repr(arguments)])
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        seen.append([event, repr(arguments)])


sys.addaudithook(watch)
import penstock

imported = ["penstock"]
for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
        imported.append(module.name)
if "harm" in sys.argv:
    open("/dev/null", "w").close()
json.dump([imported, seen, threading.active_count()], sys.stdout)
"""


def import_everything(*arguments: str) -> tuple[list[str], list[list[str]], int]:
    done = subprocess.run([sys.executable, "-B", "-c", IMPORT_ALL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported, seen, threads = json.loads(done.stdout)
    return imported, seen, threads


@pytest.mark.security(34)
def test_an_import_does_nothing_but_import() -> None:
    imported, seen, threads = import_everything()
    assert {"penstock.kafka.clients", "penstock.spark.context", "penstock.runtime.start", "penstock.app"} <= set(imported)
    assert len(imported) > 100
    assert seen == []
    assert threads == 1


@pytest.mark.security(34)
def test_other_actions_would_be_detected() -> None:
    _, [event], _ = import_everything("harm")
    assert event[0] == "open"


def third_party() -> dict[str, set[str]]:
    """Third-party modules that the package imports, with the distributions that provide them."""
    offered = packages_distributions()
    names = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names.add(node.module)
    tops = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"penstock", "__future__"}
    return {top: {canonical(name) for name in offered.get(top, [])} for top in tops}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    project = metadata()
    given = [*project.dependencies, *(text for extra in project.optional_dependencies.values() for text in extra)]
    return {canonical(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in given}


@pytest.mark.security(34)
def test_every_module_comes_from_a_declared_dependency() -> None:
    """A misspelt distribution would provide another module, or none."""
    strange = {top: found for top, found in third_party().items() if top not in IF_THERE and not found & declared()}
    assert strange == {}


@pytest.mark.security(31)
def test_everything_is_locked_by_hash() -> None:
    entries = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-z0-9][\w.-]*==[\w.!+]+( ; [^\n]*?)?\s+--hash=sha256:[0-9a-f]{64}", entry), entry[:80]
    locked = {canonical(entry.split("==")[0]) for entry in entries}
    assert declared() <= locked


@pytest.mark.security(31)
def test_installation_checks_every_hash() -> None:
    installs = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line and "--editable" not in line
    ]
    assert installs
    assert all("--require-hashes" in line for line in installs)
    # A lock is complete: to resolve it again is to depend on what was released since.
    assert all("--no-deps" in line for line in installs if ".lock" in line.rpartition(" -r ")[2])


@pytest.mark.security(31)
def test_the_type_checker_is_locked_by_hash_and_runs_no_script_of_its_own() -> None:
    """npm checks what it brings against these, wherever it brings it from."""
    packages = json.loads((ROOT / "tools/pyright/package-lock.json").read_text())["packages"]
    brought = {name: package for name, package in packages.items() if name}
    assert "node_modules/pyright" in brought
    for package in brought.values():
        assert re.match(r"sha512-[\w+/]{86}==$", package["integrity"])
        assert "resolved" not in package
    assert re.search(r"^npm ci .*--ignore-scripts", (ROOT / "tools/pyright/bring").read_text(), re.MULTILINE)


@pytest.mark.security(25)
@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("import pickle\npickle.loads(b'')", "S301"),
        ("import marshal\nmarshal.loads(b'')", "S302"),
        ("eval('1')", "S307"),
        ("exec('1')", "S102"),
        ("import yaml\nyaml.load('1')", "S506"),
        ("import shelve\nshelve.open('x')", "S301"),
    ],
)
def test_the_linter_refuses_unsafe_code(code: str, rule: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "--stdin-filename", "src/penstock/x.py", "-"]
    done = subprocess.run(command, input=f'"""X."""\n{code}\n', capture_output=True, text=True, cwd=ROOT, check=False)
    assert f": {rule} " in done.stdout


@pytest.mark.security(25)
@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_nothing_turns_bytes_into_code(path: Path) -> None:
    assert (
        list(product_runs_only_its_own_code(SourceFile(PurePosixPath(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))))
        == []
    )


@pytest.mark.security(34)
def test_the_security_policy_says_how_to_report() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "## Supported versions" in text
    assert "## Reporting a vulnerability" in text


@pytest.mark.security(34)
def test_ci_needs_no_credentials() -> None:
    """It is a script that runs make targets: no token, no key, nothing to publish with."""
    text = (ROOT / ".ci" / "run").read_text().lower()
    assert not re.search(r"token|secret|password|upload|publish|git push|curl|docker login", text)


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.security(34)
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_need_no_credentials_either(path: Path) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert found["permissions"] == {"contents": "read"}
    assert not re.search(r"secrets\.|pull_request_target|upload-pypi|git push|docker login", path.read_text(encoding="utf-8"))
    for job in found["jobs"].values():
        assert "permissions" not in job
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert [step["with"]["persist-credentials"] for step in checkouts] == [False]


@pytest.mark.security(31)
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_pinned_actions_and_run_targets_of_make(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    steps = [step for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values() for step in job["steps"]]
    assert steps
    for step in steps:
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
        else:
            command = re.fullmatch(
                r"make ([a-z-]+)( [A-Z]+=\S+| [A-Z]+=\$\{\{ github.run_number \}\})*|SEED=.* \.ci/run", step["run"]
            )
            assert command is not None, step["run"]
            assert command[1] in {None, *targets}


@pytest.mark.security(31)
@pytest.mark.parametrize("name", ["toxiproxy", "deploy"])
def test_tools_of_go_are_built_from_pinned_sources(name: str) -> None:
    builds = [line for line in (ROOT / "tools" / name / "bring").read_text().splitlines() if line.startswith("go build")]
    assert builds
    assert all("-mod=readonly" in line for line in builds)
    assert "h1:" in (ROOT / "tools" / name / "go.sum").read_text()
