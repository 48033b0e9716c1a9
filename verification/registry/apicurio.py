"""A real schema registry: Apicurio in memory, with Confluent's interface, plain or with TLS."""

from __future__ import annotations

import http.client
import shutil
import subprocess
from pathlib import Path

from verification.harness.processes import PARTS, HarnessError, free_port, wait_until
from verification.harness.server import Server

REGISTRY = PARTS / "registry"
OLDEST_JAVA = 21
START_TIMEOUT_S = 600
_INTERFACE = "/apis/ccompat/v7"


class Apicurio(Server):
    """The registry's process. With a certificate and its key, PEM files, it also answers on a port with TLS."""

    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        if not (REGISTRY / "app" / "quarkus-run.jar").exists():
            raise HarnessError(f"no registry in {REGISTRY}; run `make registry`")
        super().__init__("the registry", "apicurio-")
        self.port = free_port()
        self.tls_port = free_port()
        self._tls = None if certificate is None or key is None else (certificate, key)

    @property
    def url(self) -> str:
        """The address of Confluent's interface."""
        return f"http://127.0.0.1:{self.port}{_INTERFACE}"

    @property
    def tls_url(self) -> str:
        """The same with TLS."""
        return f"https://localhost:{self.tls_port}{_INTERFACE}"

    @property
    def own_url(self) -> str:
        """The address of Apicurio's own interface, for its Java client."""
        return f"http://127.0.0.1:{self.port}/apis/registry/v3"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self.port)}
        if self._tls is not None:
            certificate, key = self._tls
            settings |= {
                "QUARKUS_HTTP_SSL_CERTIFICATE_FILES": str(certificate),
                "QUARKUS_HTTP_SSL_CERTIFICATE_KEY_FILES": str(key),
                "QUARKUS_HTTP_SSL_PORT": str(self.tls_port),
                "QUARKUS_HTTP_INSECURE_REQUESTS": "enabled",
            }
        command = [str(newest_java()), "-Xmx512m", "-XX:+UseSerialGC", "-jar", str(REGISTRY / "app" / "quarkus-run.jar")]
        self._run(command, settings)
        wait_until(f"the registry at {self.url} answers", self._answers, START_TIMEOUT_S, every_s=0.5)

    def _answers(self) -> bool:
        self._check_it_starts()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"{_INTERFACE}/subjects")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()


def newest_java() -> Path:
    """The newest JDK of this machine that can run the registry: on the path, or where Debian has them."""
    on_path = shutil.which("java")
    candidates = [Path(on_path)] if on_path else []
    candidates += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    versions = {_version(candidate): candidate for candidate in candidates}
    newest = max(versions, default=0)
    if newest < OLDEST_JAVA:
        raise HarnessError(f"the registry needs Java {OLDEST_JAVA} or later; found {newest}")
    return versions[newest]


def _version(java: Path) -> int:
    done = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    _, _, rest = done.stderr.partition('"')
    number = rest.split(".", 1)[0].split('"', 1)[0]
    return int(number) if number.isdigit() else 0
