"""The health check of the image, against a real admin server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy import healthcheck
from tests.unit.admin.conftest import Serve

TOKEN = "0123456789abcdef"


def address_of(url: str | None) -> str:
    """Host and port of a server."""
    assert url is not None
    return urlsplit(url).netloc


def exit_of(monkeypatch: pytest.MonkeyPatch, address: str, *arguments: str) -> object:
    """What the script exits with: None if it returns."""
    monkeypatch.setenv("PENSTOCK_ADMIN_ADDRESS", address)
    monkeypatch.setattr("sys.argv", ["healthcheck.py", *arguments])
    try:
        healthcheck.main()
    except SystemExit as ended:
        return ended.code
    return None


def test_an_application_that_starts_is_live_and_not_ready(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    address = address_of(serve(is_up=False).running.admin_url)
    assert exit_of(monkeypatch, address) is None
    assert str(exit_of(monkeypatch, address, "/health/ready")).endswith(": 503")


def test_a_running_application_is_ready(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_of(monkeypatch, address_of(serve().running.admin_url), "/health/ready") is None


def test_a_server_with_a_certificate_is_asked_over_tls_and_without_a_token(
    serve: Serve, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = certificate
    served = serve(admin_address="0.0.0.0:0", admin_token=TOKEN, admin_certificate=chain, admin_key=key)
    port = address_of(served.running.admin_url).rpartition(":")[2]
    assert exit_of(monkeypatch, f"0.0.0.0:{port}") is None
    assert str(exit_of(monkeypatch, f"0.0.0.0:{port}", "/state")).endswith(": 401")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "off", "localhost:port"])
def test_without_an_answer_it_is_not_healthy(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert address in str(exit_of(monkeypatch, address))
