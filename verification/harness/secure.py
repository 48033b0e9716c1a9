"""A Kafka that requires TLS and a password, and its certificates, signed by an authority made with openssl."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verification.harness.broker import Broker
from verification.harness.processes import HarnessError

MECHANISM = "SCRAM-SHA-512"
USER = "ann"
LOOPBACK = "IP:127.0.0.1,DNS:localhost"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, each a PEM file."""

    certificate: Path
    key: Path

    def pem(self) -> str:
        """Both in one text, as in Java's PEM keystore."""
        return self.key.read_text() + self.certificate.read_text()


class Authority:
    """Signs certificates; clients that trust its `certificate` trust them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = self.self_signed("authority", "CA:TRUE")

    @property
    def certificate(self) -> Path:
        """The certificate that clients trust."""
        return self._own.certificate

    def issue(self, name: str, *, alternatives: str = LOOPBACK, days: int = 2, password: str = "") -> Certificate:
        """Issue a certificate for the names in `alternatives`; with -1 days it expired yesterday. `password` encrypts its key."""
        key, request, certificate = (self._directory / f"{name}.{kind}" for kind in ("key", "request", "pem"))
        extensions = self._directory / f"{name}.extensions"
        extensions.write_text(f"subjectAltName={alternatives}\n")
        _openssl("req", "-new", *_new_key(key), "-subj", f"/CN={name}", "-out", request)
        if password:  # in the only format that Kafka's client reads
            plain, key = key, key.with_suffix(".secured")
            _openssl("pkcs8", "-topk8", "-in", plain, "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{password}", "-out", key)
        signer = ("-CA", self._own.certificate, "-CAkey", self._own.key, "-CAcreateserial")
        _openssl("x509", "-req", "-in", request, *signer, "-days", days, "-extfile", extensions, "-out", certificate)
        return Certificate(certificate, key)

    def self_signed(self, name: str, constraint: str = "CA:FALSE") -> Certificate:
        """Make a self-signed certificate."""
        key, certificate = self._directory / f"{name}.key", self._directory / f"{name}.pem"
        extensions = ("-addext", f"basicConstraints=critical,{constraint}", "-addext", f"subjectAltName={LOOPBACK}")
        _openssl("req", "-x509", *_new_key(key), "-subj", f"/CN={name}", "-days", 2, *extensions, "-out", certificate)
        return Certificate(certificate, key)


class SecureBroker(Broker):
    """A broker whose second listener accepts SASL_SSL only; it is behind the proxy if there is one.

    The first listener stays open, for the test itself.

    Example:
        >>> with SecureBroker() as broker:  # doctest: +SKIP
        ...     config = Config.load(bootstrap_servers=broker.proxied_bootstrap_servers, kafka=broker.login)
    """

    _proxied_protocol = "SASL_SSL"

    def __init__(self, *, proxied_port: int | None = None, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(proxied_port=proxied_port, settings=settings)
        self.proxied_port = proxied_port or self._upstream_port
        self.password = secrets.token_hex(12)
        self._files = Path(tempfile.mkdtemp(prefix="certificates-"))
        self.authority = Authority(self._files)
        keystore = self._files / "keystore.pem"
        keystore.write_text(self.authority.issue("broker").pem())
        self._settings |= {
            "listener.name.proxied.ssl.keystore.type": "PEM",
            "listener.name.proxied.ssl.keystore.location": str(keystore),
            "listener.name.proxied.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.proxied.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }

    @property
    def login(self) -> dict[str, str]:
        """The settings of a librdkafka client."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": self.password,
        }

    def close(self) -> None:
        """Kill it if it is running, and remove its data and its certificates."""
        super().close()
        shutil.rmtree(self._files, ignore_errors=True)

    def _format_options(self) -> list[str]:
        return ["--add-scram", f"{MECHANISM}=[name={USER},password={self.password}]"]


def _new_key(path: Path) -> tuple[object, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path)


def _openssl(*arguments: object) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"openssl {arguments[0]} ended with {done.returncode}: {done.stderr}")
