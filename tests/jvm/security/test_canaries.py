"""A real application with a unique secret in every place that can hold one: nothing that it leaves behind contains any of them.

It runs over SASL_SSL with all output turned on: DEBUG logs of Python, librdkafka and Java, Spark's event log and UI.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from penstock.config import Config
from penstock.kafka.publishers import TransactionalPublisher
from verification.harness import topics
from verification.harness.broker import NEVER_KILLED
from verification.harness.canaries import canaries_in, canary
from verification.harness.processes import free_port, wait_until
from verification.harness.secure import SecureBroker

pytestmark = pytest.mark.jvm

START_S = 120
CONFIG = 2
APPLICATION = """
import logging
import os
import sys

from penstock import App, StreamsBuilder, dead_letter

logging.basicConfig(level=logging.DEBUG)


def shout(value):
    if value == "fatal":
        raise ValueError("too quiet")
    return value.upper()


builder = StreamsBuilder()
shouted = builder.stream(os.environ["HEARD"], value=dict).map_values(lambda value: shout(value["text"]))
shouted.group_by_key(value=str).count(store="counts").to_stream().to("said", value=int)
app = App("loud-" + os.environ["HEARD"], builder.build(), deserialization_errors=dead_letter("letters"))


def explain(running):
    frame, config = running.table("counts"), running.config
    frame.explain(True)
    frame.explain("formatted")
    print("rows:", frame.count())
    print(config, vars(config.kafka) if hasattr(config.kafka, "__dict__") else dict(config.kafka), flush=True)


if __name__ == "__main__":
    if "explain" in sys.argv:
        with app.start() as running:
            running.wait_until_running()
            explain(running)
            running.wait()
    else:
        app.run()
"""
LOG4J = """
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n%ex
"""


ADMIN_PATHS = (
    *("/health/ready", "/health/live", "/metrics", "/topology", "/state", "/watermarks", "/debug/threads", "/debug/barriers"),
    *("/config", "/logs/level", "/stores", "/stores/counts/range", "/dashboard/snapshot", "/"),
)


@dataclass
class Stage:
    """An application's directory, its secrets and the broker it runs on."""

    directory: Path
    broker: SecureBroker
    canaries: dict[str, str]
    ui_port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)

    @property
    def log(self) -> str:
        return (self.directory / "output.log").read_text(errors="replace")

    @property
    def left_behind(self) -> Path:
        """The directory of everything that the application writes; its configuration is elsewhere."""
        return self.directory

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        secrets = {f"CANARY_{name.upper()}": value for name, value in self.canaries.items()}
        own = {"TMPDIR": str(self.directory / "scratch"), "HEARD": "heard"}
        settings = {**os.environ, **secrets, **own, **environment}
        with (self.directory / "output.log").open("ab") as log:
            command = [sys.executable, str(self.directory / "app.py"), *arguments]
            return subprocess.Popen(command, cwd=self.directory, env=settings, stdout=log, stderr=log)

    def run(self, **environment: str) -> int:
        """Run it to its end and return the exit code."""
        process = self.start(**environment)
        try:
            return process.wait(START_S)
        finally:
            process.kill()

    def send(self, *values: bytes, to: str = "heard") -> None:
        topics.produce(self.broker.bootstrap_servers, to, [topics.Sent(key=b"k", value=value) for value in values])

    def ui(self) -> str:
        """Return what Spark's UI shows about settings, jobs and queries."""
        address = f"http://127.0.0.1:{self.ui_port}/api/v1/applications"
        name = _fetched(address).split('"id" : "')[1].split('"')[0]
        return "".join(_fetched(f"{address}/{name}/{what}") for what in ("environment", "jobs", "stages", "sql?details=true"))

    def admin(self) -> str:
        """Return everything that the admin server returns to a client with the read token."""
        login = {"Authorization": f"Bearer {self.canaries['reader']}"}
        return "".join(_fetched(f"http://127.0.0.1:{self.admin_port}{path}", login) for path in ADMIN_PATHS)


def _fetched(address: str, headers: Mapping[str, str] | None = None) -> str:
    with urllib.request.urlopen(urllib.request.Request(address, headers=dict(headers or {})), timeout=30) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("loud")
    for name in ("scratch", "events"):
        (directory / name).mkdir()
    with SecureBroker(settings=NEVER_KILLED) as broker:
        for topic in ("heard", "said", "letters", "fatal"):
            topics.create(broker.bootstrap_servers, topic)
        names = (
            "key_password",
            "oauth",
            "client_secret",
            "registry",
            "spark_secret",
            "spark_key",
            "url",
            "admin",
            "reader",
            "file",
        )
        canaries = {name: canary(name) for name in names}
        certificate = broker.authority.issue("client", password=canaries["key_password"])
        canaries |= {"sasl": broker.password, "private_key": certificate.key.read_text().splitlines()[3]}
        found = Stage(directory, broker, canaries)
        (directory / "app.py").write_text(APPLICATION)
        write_settings(found, certificate.key, certificate.certificate)
        yield found


def write_settings(stage: Stage, key: Path, certificate: Path) -> None:
    """Write every kind of setting that can hold a secret, by reference, and settings that turn on all output."""
    (stage.directory / "log4j2.properties").write_text(LOG4J.format(path=stage.directory / "java.log"))
    kafka = {
        **stage.broker.login,
        "bootstrap.servers": stage.broker.proxied_bootstrap_servers,
        "sasl.password": "env:CANARY_SASL",
        "ssl.key.pem": f"file:{key}",
        "ssl.certificate.pem": f"file:{certificate}",
        "ssl.key.password": "env:CANARY_KEY_PASSWORD",
        "sasl.oauthbearer.config": "env:CANARY_OAUTH",
        "producer.sasl.oauthbearer.client.secret": "env:CANARY_CLIENT_SECRET",
        "debug": "conf,security,broker",
    }
    registry = {"url": "https://registry.invalid", "bearer.auth.token": "env:CANARY_REGISTRY"}
    canaries = stage.canaries
    spark = {
        "spark.authenticate.secret": canaries["spark_secret"],
        "spark.hadoop.fs.s3a.secret.key": canaries["spark_key"],
        "spark.hadoop.proxy": f"https://ann:{canaries['url']}@nowhere.invalid/",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={stage.directory / 'log4j2.properties'}",
        "spark.driver.memory": "1g",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{stage.directory / 'events'}",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(stage.ui_port),
    }
    lines = [
        "lanes = 1",
        f'admin_address = "127.0.0.1:{stage.admin_port}"',
        'admin_token = "env:CANARY_ADMIN"',
        'admin_read_token = "env:CANARY_READER"',
        *("[kafka]", *(f'"{name}" = "{value}"' for name, value in kafka.items())),
        *("[schema_registry]", *(f'"{name}" = "{value}"' for name, value in registry.items())),
        *("[spark]", *(f'"{name}" = "{value}"' for name, value in spark.items())),
    ]
    # Outside the application's directory, which is searched for the secrets that are in plain text here.
    settings = key.parent / "penstock.toml"
    settings.write_text("\n".join(lines))
    (stage.directory / "penstock.toml").symlink_to(settings)


@pytest.mark.security(20)
@pytest.mark.security(24)
def test_a_start_with_dead_letters_and_a_fence_reveals_no_secret(stage: Stage) -> None:
    stage.send(b'{"text": "hello"}', b"no json")
    process = stage.start("explain")
    try:
        seen = watch(stage, process)
        fence(stage)
        assert process.wait(START_S) != 0
    finally:
        process.kill()
    assert "another instance" in stage.log.lower()
    letters = topics.read(stage.broker.bootstrap_servers, "letters")
    assert len(letters) == 1
    assert '"spark.authenticate.secret", "*********(redacted)"' in seen["ui"]
    assert '"sasl.password":"[hidden]"' in seen["admin"]
    assert "CONF" in stage.log.upper()
    assert list((stage.directory / "events").rglob("*"))
    assert (stage.directory / "java.log").stat().st_size > 1000
    assert canaries_in(stage.canaries, stage.left_behind, *seen.values()) == []
    assert canaries_in(stage.canaries, repr([*letters, *everything_in_kafka(stage)])) == []


def watch(stage: Stage, process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Return what a running application shows to the outside; search its files while they exist."""
    servers = stage.broker.bootstrap_servers

    def is_at_work() -> bool:
        assert process.poll() is None, stage.log[-4000:]
        return len(topics.read(servers, "said")) == 1 and "rows:" in stage.log

    wait_until("the application works", is_at_work, START_S)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    family = [member for member in family if member.status() != psutil.STATUS_ZOMBIE]
    assert any("java" in member.name() for member in family)
    assert canaries_in(stage.canaries, stage.left_behind) == []
    assert strangers(family) == []
    return {"ui": stage.ui(), "admin": stage.admin(), "processes": repr([member.cmdline() for member in family])}


def strangers(family: list[psutil.Process]) -> list[object]:
    """Return the ports that can be reached from other machines."""
    listening = [at for member in family for at in member.net_connections("inet") if at.status == psutil.CONN_LISTEN]
    assert listening
    return [at.laddr for at in listening if at.laddr.ip not in {"127.0.0.1", "::1", "::ffff:127.0.0.1"}]


def fence(stage: Stage) -> None:
    """Start another instance; the application is fenced at its next epoch."""
    config = Config.load(environment={}, bootstrap_servers=stage.broker.bootstrap_servers)
    publisher = TransactionalPublisher(config, "loud-heard", "loud-heard", [])
    publisher.start()
    stage.send(b'{"text": "again"}')


def everything_in_kafka(stage: Stage) -> list[object]:
    servers = stage.broker.bootstrap_servers
    written = ("said", "loud-heard-counts-changelog", "loud-heard-lanes-changelog")
    return [topics.group_offsets(servers, "loud-heard"), *(topics.read(servers, topic) for topic in written)]


@pytest.mark.security(20)
def test_a_record_that_ends_the_application_reveals_no_secret(stage: Stage) -> None:
    stage.send(b'{"text": "fatal"}', to="fatal")
    assert stage.run(HEARD="fatal") == 10, stage.log[-4000:]
    assert "too quiet" in stage.log
    assert canaries_in(stage.canaries, stage.left_behind) == []


@pytest.mark.security(20)
def test_a_refused_password_is_not_revealed(stage: Stage) -> None:
    wrong = canary("wrong")
    assert stage.run(CANARY_SASL=wrong) == CONFIG, stage.log[-4000:]
    assert "Check the credentials" in stage.log
    assert canaries_in({**stage.canaries, "wrong": wrong}, stage.left_behind) == []
