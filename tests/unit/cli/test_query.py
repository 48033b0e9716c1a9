"""Queries to an admin server: the requests, the output, and the errors."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.cli import query
from penstock.cli.requests import AdminConnection
from penstock.errors import ConfigError
from tests.unit.cli.calling import call, serving

COLUMNS = [{"name": "key", "type": "string"}, {"name": "value", "type": "int64"}]
ROWS = {"columns": COLUMNS, "rows": [["to", 2], ["be", {"n": 1}]], "epochs": [7, 7], "is_complete": True}


class TestSql:
    def test_rows_are_printed_with_their_epoch(self) -> None:
        with serving({"/sql": (200, ROWS)}) as admin:
            found = call("query", "select * from words", "--admin", admin.url, "--limit", "5")
        assert found.exit_code == 0, found.output
        assert admin.requests == [("POST", "/sql", None, {"sql": "select * from words", "limit": 5})]
        assert "│ to  │ 2        │" in found.output
        assert "2 rows, as of epoch 7" in found.output

    def test_as_json_and_as_csv(self) -> None:
        with serving({"/sql": (200, ROWS)}) as admin:
            found = json.loads(call("query", "select 1", "--json", "--admin", admin.url).output)
            assert found == {**ROWS, "columns": ["key", "value"]}
            assert call("query", "select 1", "--csv", "--admin", admin.url).output == 'key,value\nto,2\nbe,"{""n"": 1}"\n'

    def test_control_characters_are_escaped(self) -> None:
        rows = {**ROWS, "columns": COLUMNS[:1], "rows": [["\x1b[2Jgone [bold]kept[/bold]"]]}
        with serving({"/sql": (200, rows)}) as admin:
            found = call("query", "select 1", "--admin", admin.url)
        assert "\x1b" not in found.output
        assert "\\x1b[2Jgone [bold]kept[/bold]" in found.output

    def test_a_truncated_result_over_several_epochs_says_so(self) -> None:
        with serving({"/sql": (200, {**ROWS, "epochs": [7, 9], "is_complete": False})}) as admin:
            found = call("query", "select 1", "--admin", admin.url)
        assert "the first 2 rows; there are more (--limit), as of an epoch between 7 and 9" in found.output

    def test_a_refused_query_prints_the_reason(self) -> None:
        with serving({"/sql": (400, {"error": "no such table: wrods"})}) as admin:
            found = call("query", "select * from wrods", "--admin", admin.url)
        assert found.exit_code == 2
        assert "/sql: no such table: wrods (status 400)" in found.output


class TestKey:
    def test_one_key_of_one_store(self) -> None:
        entry = {"epoch": 7, "key": "a/b", "value": 3, "timestamp": 5}
        with serving({"/stores/my%20words/get": (200, entry)}) as admin:
            found = call("query", "--store", "my words", "--key", "a/b&c", "--csv", "--admin", admin.url)
        assert found.output == "key,value,timestamp\na/b,3,5\n"
        assert [path for _, path, _, _ in admin.requests] == ["/stores/my%20words/get?key=a%2Fb%26c"]

    def test_an_unknown_key_gives_no_row_and_an_unknown_store_is_an_error(self) -> None:
        with serving({"/stores/words/get": (404, {"error": "no such key", "code": "no_key", "epoch": 7})}) as admin:
            found = call("query", "--store", "words", "--key", "k", "--admin", admin.url)
            assert (found.exit_code, "0 rows" in found.output) == (0, True)
            found = call("query", "--store", "wrods", "--key", "k", "--admin", admin.url)
        assert found.exit_code == 2

    @pytest.mark.parametrize("arguments", [(), ("select 1", "--store", "s", "--key", "k"), ("--store", "s"), ("--key", "k")])
    def test_a_query_is_either_sql_or_a_key(self, arguments: tuple[str, ...]) -> None:
        found = call("query", *arguments)
        assert found.exit_code == 2
        assert "either SQL" in found.output


class TestToken:
    def test_the_token_comes_from_the_environment_or_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("from-file\n")
        with serving({"/sql": (200, ROWS)}) as admin:
            call("query", "q", "--admin", admin.url, PENSTOCK_ADMIN_TOKEN="from-environment")
            call("query", "q", "--admin", admin.url, "--token", "env:MINE", MINE="mine")
            call("query", "q", "--admin", admin.url, "--token", f"file:{path}")
            call("query", "q", "--admin", admin.url, PENSTOCK_ADMIN_TOKEN=f"file:{path}")
        found = [token for _, _, token, _ in admin.requests]
        assert found == ["Bearer from-environment", "Bearer mine", "Bearer from-file", "Bearer from-file"]

    def test_a_file_that_others_may_read_causes_a_warning(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "token"
        path.write_text("from-file")
        path.chmod(0o644)
        AdminConnection.at("http://127.0.0.1:1", f"file:{path}")
        assert f"--token: other users may read or write {path}" in caplog.text
        caplog.clear()
        path.chmod(0o600)
        AdminConnection.at("http://127.0.0.1:1", f"file:{path}")
        assert not caplog.text

    def test_a_plain_text_token_is_refused_and_not_printed(self) -> None:
        found = call("query", "q", "--token", "hunter2")
        assert found.exit_code == 2
        assert "hunter2" not in found.output
        assert "write env:NAME or file:PATH" in found.output

    @pytest.mark.parametrize("token", ["env:PENSTOCK_NOT_THERE", "file:/not/there"])
    def test_a_missing_variable_or_file_is_refused(self, token: str) -> None:
        with pytest.raises(ConfigError, match="--token: "):
            AdminConnection.at("http://127.0.0.1:1", token)

    def test_the_token_is_not_sent_to_another_machine_unencrypted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MINE", "hunter2")
        with pytest.raises(ConfigError, match="not sent to another machine unencrypted"):
            AdminConnection.at("http://example.com:7070", "env:MINE")
        assert "hunter2" not in repr(AdminConnection.at("https://example.com", "env:MINE"))

    def test_redirects_are_not_followed(self) -> None:
        with serving({"/sql": (302, {}), "/elsewhere": (200, ROWS)}) as admin:
            found = call("query", "q", "--admin", admin.url, PENSTOCK_ADMIN_TOKEN="mine")
        assert found.exit_code == 2
        assert len(admin.requests) == 1

    @pytest.mark.parametrize("status", [401, 403])
    def test_the_error_for_a_wrong_token_says_how_to_set_it(self, status: int) -> None:
        with serving({"/sql": (status, {"error": "no"})}) as admin:
            found = call("query", "q", "--admin", admin.url)
        assert found.exit_code == 2
        assert "Set PENSTOCK_ADMIN_TOKEN" in found.output


@contextmanager
def answering(sent: bytes | None) -> Iterator[int]:
    """Accept one connection on a port, send that and close it; with None, never answer."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                if sent is None:
                    is_over.wait(10)
                else:
                    connection.sendall(sent)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        is_over.set()
        thread.join(10)


class TestAddress:
    def test_an_unreachable_server_is_an_error(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        found = call("query", "q", "--admin", f"http://127.0.0.1:{port}")
        assert found.exit_code == 22
        assert "Check that the application is running" in found.output

    @pytest.mark.parametrize(
        ("sent", "secure", "said", "code"),
        [
            (b"\x15\x03\x01\x00\x02\x02\x46", False, "accepts connections, but sends no answer in HTTP: ", 22),
            (b"", False, "or asks for https://", 22),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, "answers, but not as https:// asks (WRONG_VERSION_NUMBER)", 2),
        ],
    )
    def test_a_server_that_is_there_is_not_said_to_be_missing(self, sent: bytes, secure: bool, said: str, code: int) -> None:
        with answering(sent) as port:
            found = call("query", "q", "--admin", f"http{'s' if secure else ''}://127.0.0.1:{port}")
        assert said in found.output
        assert "No admin server responds" not in found.output
        assert found.exit_code == code

    def test_a_server_that_is_slow_is_not_said_to_be_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(query, "_SQL_S", 0.2)
        with answering(None) as port:
            found = call("query", "q", "--admin", f"http://127.0.0.1:{port}")
        assert "has not answered within 0.2 s: the application is busy, or there is none." in found.output

    def test_a_response_that_is_not_json_is_an_error(self) -> None:
        with serving({"/sql": (200, b"<html>")}) as admin:
            found = call("query", "q", "--admin", admin.url)
        assert "the response is not JSON (status 200)" in found.output

    @pytest.mark.parametrize("address", ["127.0.0.1:7070", "ftp://x", "http://", "http://user:hunter2@x", "http://x/path"])
    def test_an_invalid_address_is_refused(self, address: str) -> None:
        with pytest.raises(ConfigError, match="expected http://host:port") as raised:
            AdminConnection.at(address)
        assert "hunter2" not in str(raised.value)
