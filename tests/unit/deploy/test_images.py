"""The images: no root, nothing that is not locked, the same paths and users as the manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.deploy.files import DEPLOY, KUBERNETES, ROOT, SPARK, manifests, one, variables

IMAGES = {DEPLOY / "Dockerfile": KUBERNETES, DEPLOY / "spark" / "Dockerfile": SPARK}
BOTH = pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.parent.name)

Instruction = tuple[str, str]


def instructions(path: Path) -> list[Instruction]:
    """The instructions of a Dockerfile, each with its arguments on one line."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def last_stage(path: Path) -> list[Instruction]:
    """The instructions of the image itself."""
    found = instructions(path)
    start = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def environment(path: Path) -> dict[str, str]:
    """The variables of the image."""
    return dict(pair.split("=", 1) for name, text in last_stage(path) if name == "ENV" for pair in text.split())


@BOTH
def test_it_runs_as_the_user_of_the_manifests(path: Path) -> None:
    *_, user = [text for name, text in last_stage(path) if name == "USER"]
    pod = one(manifests(IMAGES[path]), "StatefulSet")["spec"]["template"]["spec"]
    assert int(user.partition(":")[0]) == pod["securityContext"]["runAsUser"] > 0
    names = [name for name, _ in last_stage(path)]
    after = names[len(names) - names[::-1].index("USER") :]
    assert not {"COPY", "RUN"} & set(after), "nothing is written after root has left"


@BOTH
def test_stores_are_where_the_volume_is(path: Path) -> None:
    own = environment(path)
    [container] = one(manifests(IMAGES[path]), "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert Path(own["PENSTOCK_STATE_DIR"]).parent == Path("/var/lib/penstock")
    assert variables(container).get("PENSTOCK_STATE_DIR", own["PENSTOCK_STATE_DIR"]) == own["PENSTOCK_STATE_DIR"]


@BOTH
def test_no_setting_of_the_image_would_silently_override_the_settings_file(path: Path) -> None:
    """Variables override penstock.toml. Only what the image itself decides is one."""
    assert [name for name in environment(path) if name.startswith("PENSTOCK_")] == ["PENSTOCK_STATE_DIR"]


@BOTH
def test_everything_that_is_installed_is_locked(path: Path) -> None:
    commands = [command for name, text in instructions(path) if name == "RUN" for command in re.split(r"&&|\|", text)]
    installs = [command for command in commands if "pip install" in command]
    assert len(installs) == 3
    for command in installs:
        assert "--require-hashes" in command or ("--no-index" in command and "--no-deps" in command), command
    assert all("--no-deps" in command for command in installs if "/dev/stdin" not in command)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"^ADD |curl|wget|--trusted-host|ARG \w*(TOKEN|PASSWORD|SECRET)", text, re.MULTILINE)


@BOTH
def test_no_tool_that_installs_stays_in_the_image(path: Path) -> None:
    assert "pip uninstall --yes setuptools pip" in " ".join(text for _, text in instructions(path))


@BOTH
def test_the_build_sees_only_what_it_copies(path: Path) -> None:
    rules = path.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    first, *allowed = [rule for rule in rules if not rule.startswith("#")]
    assert first == "*"
    copied = [text.split()[:-1] for name, text in instructions(path) if name == "COPY" and not text.startswith("--from")]
    assert sorted(source for sources in copied for source in sources) == sorted(rule.removeprefix("!") for rule in allowed)
    assert all((ROOT / source).is_file() for sources in copied for source in sources if "*" not in source)


@BOTH
def test_spark_is_the_locked_one(path: Path) -> None:
    [version] = re.findall(r"^pyspark==([\d.]+)", (DEPLOY / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    images = re.findall(r"apache/spark:([\d.]+)-", path.read_text(encoding="utf-8"))
    assert set(images) <= {version}


class TestTheImageOfAnApplication:
    path = DEPLOY / "Dockerfile"

    def test_its_health_is_checked_through_the_admin_server(self) -> None:
        [check] = [text for name, text in last_stage(self.path) if name == "HEALTHCHECK"]
        command = json.loads(check.partition("CMD ")[2])
        copied = [text for name, text in last_stage(self.path) if name == "COPY" and "healthcheck.py" in text]
        assert command == ["python", "/opt/penstock/healthcheck.py"]
        assert copied == ["deploy/healthcheck.py /opt/penstock/"]

    def test_signals_reach_the_driver(self) -> None:
        own = dict(last_stage(self.path))
        assert own["STOPSIGNAL"] == "SIGTERM"
        assert json.loads(own["ENTRYPOINT"]) == ["tini", "--", "penstock"]
        assert json.loads(own["CMD"])[0] == "run"

    def test_java_can_be_left_out(self) -> None:
        found = instructions(self.path)
        stages = {
            text.partition(" AS ")[2]: text.partition(" AS ")[0] for name, text in found if name == "FROM" and " AS " in text
        }
        default = dict(text.split("=", 1) for name, text in found if name == "ARG" and "=" in text)["JAVA"]
        assert last_stage(self.path)[0] == ("FROM", "java-${JAVA}")
        assert f"java-{default}" in stages
        assert stages["java-none"] == "${BASE}"
        java = [text for name, text in found if name == "RUN" and "openjdk" in text]
        assert len(java) == 1
        assert found.index(("RUN", java[0])) > found.index(("FROM", "java-none AS java-17"))

    def test_spark_is_left_out_with_java(self) -> None:
        """`JAVA` chooses the lock, and each choice has one."""
        copied = dict(text.split() for name, text in instructions(self.path) if name == "COPY" and text.endswith(".lock"))
        assert copied == {
            "deploy/requirements.lock": "deploy/java-17.lock",
            "deploy/requirements-local.lock": "deploy/java-none.lock",
        }
        found = instructions(self.path)
        start = found.index(("FROM", "${BASE} AS environment"))
        assert found[start + 1] == ("ARG", "JAVA"), "a stage sees an argument only if it names it"
        assert "-r deploy/java-${JAVA}.lock" in " ".join(text for name, text in found if name == "RUN")

    def test_nothing_else_is_written(self) -> None:
        assert environment(self.path)["PYTHONDONTWRITEBYTECODE"] == "1"
