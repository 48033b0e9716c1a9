"""Queries over HTTP: what is answered, and what is refused."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from typing import Any

import pytest

from penstock.queries import CommittedState, StoreAnswers, pages
from penstock.queries.pages import Bounds
from tests.unit.epochs.application import SHARDS, Raw
from tests.unit.queries.asgi_client import AsgiClient
from tests.unit.queries.lanes import Lanes

KEYS = 30


@pytest.fixture
def client(thirty_keys: CommittedState) -> AsgiClient:
    return AsgiClient(thirty_keys)


def pages_of(client: AsgiClient, path: str, **parameters: object) -> tuple[list[Any], int]:
    """Return all rows, read page by page, and the number of pages."""
    rows: list[Any] = []
    cursor: dict[str, str] = {}
    for number in range(1, 1_000):
        status, page = client.get(path, **parameters, **cursor)
        assert (status, page["epoch"]) == (200, 1)
        rows += page["rows"]
        if page["cursor"] is None:
            return rows, number
        cursor = {"cursor": page["cursor"]}
    raise AssertionError("pages without end")


class TestAnswers:
    def test_the_stores(self, client: AsgiClient) -> None:
        status, answer = client.get("/stores")
        assert (status, answer["epoch"]) == (200, 1)
        words = {"name": "words", "kind": "timestamped", "key": "String()", "value": "Int64()", "is_global": False}
        assert words in answer["stores"]
        assert [store["name"] for store in answer["stores"]] == ["brief", "last", "sessions", "versions", "windows", "words"]

    def test_an_entry(self, client: AsgiClient) -> None:
        assert client.get("/stores/words/get", key="w03") == (200, {"epoch": 1, "key": "w03", "value": 2, "timestamp": 2_003})
        assert client.get("/stores/last/get", key="k03") == (200, {"epoch": 1, "key": "k03", "value": "new w03"})
        assert client.get("/stores/words/get", key="nope") == (404, {"error": "no such key", "code": "no_key", "epoch": 1})
        assert client.get("/stores/last/get", key="calls")[0] == 200

    def test_many_entries_at_once(self, client: AsgiClient) -> None:
        status, answer = client.post("/stores/last/get", {"keys": ["k03", "nope", "k04"]})
        assert (status, answer) == (
            200,
            {"epoch": 1, "entries": [{"key": "k03", "value": "new w03"}, None, {"key": "k04", "value": "new w04"}]},
        )

    def test_a_version(self, client: AsgiClient) -> None:
        now = {"epoch": 1, "key": "k03", "value": "new w03", "timestamp": 2_003, "valid_to": None}
        assert client.get("/stores/versions/get", key="k03") == (200, now)
        then = {"epoch": 1, "key": "k03", "value": "old w03", "timestamp": 1_003, "valid_to": 2_003}
        assert client.get("/stores/versions/get", key="k03", as_of=1_500) == (200, then)
        assert client.get("/stores/versions/get", key="k03", as_of="1970-01-01T00:00:01.500Z") == (200, then)
        assert client.get("/stores/versions/get", key="k03", as_of=5)[0] == 404
        rows, _ = pages_of(client, "/stores/versions/fetch", key="k03", limit=1)
        assert [row["value"] for row in rows] == ["old w03", "new w03"]

    @pytest.mark.parametrize("limit", [1, 7, 1_000])
    def test_pages(self, client: AsgiClient, limit: int) -> None:
        rows, number = pages_of(client, "/stores/words/range", limit=limit)
        assert [row["key"] for row in rows] == ["new", "old", *(f"w{word:02}" for word in range(KEYS))]
        assert number == -(-len(rows) // limit)
        rows, _ = pages_of(client, "/stores/words/range", limit=limit, prefix="w1")
        assert [row["key"] for row in rows] == [f"w1{digit}" for digit in range(10)]
        rows, _ = pages_of(client, "/stores/words/range", limit=limit, **{"from": "w08", "to": "w11"})
        assert [row["key"] for row in rows] == ["w08", "w09", "w10", "w11"]
        rows, _ = pages_of(client, "/stores/versions/range", limit=limit)
        assert [row["key"] for row in rows] == [f"k{key:02}" for key in range(KEYS)]

    @pytest.mark.parametrize("limit", [1, 2])
    def test_no_row_is_lost_where_several_shards_have_the_same_key(self, client: AsgiClient, limit: int) -> None:
        rows, _ = pages_of(client, "/stores/last/range", limit=limit)
        assert sorted(row["key"] for row in rows) == [*["calls"] * SHARDS, *(f"k{key:02}" for key in range(KEYS))]

    @pytest.mark.parametrize("limit", [1, 7, 1_000])
    def test_windows_and_sessions(self, client: AsgiClient, limit: int) -> None:
        rows, _ = pages_of(client, "/stores/windows/range", limit=limit)
        assert [(row["key"], row["window_start"]) for row in rows] == [
            (f"k{key:02}", start) for key in range(KEYS) for start in (1_000, 2_000)
        ]
        rows, _ = pages_of(client, "/stores/windows/fetch", key="k03", limit=limit)
        first = {"key": "k03", "window_start": 1_000, "window_end": 2_000, "value": 1, "timestamp": 1_003}
        assert rows == [first, {**first, "window_start": 2_000, "window_end": 3_000, "timestamp": 2_003}]
        rows, _ = pages_of(client, "/stores/windows/fetch", key="k03", limit=limit, **{"from": 1_001})
        assert [row["window_start"] for row in rows] == [2_000]
        rows, _ = pages_of(client, "/stores/windows/range", limit=limit, from_time=2_000, **{"from": "k28"})
        assert [(row["key"], row["window_start"]) for row in rows] == [("k28", 2_000), ("k29", 2_000)]
        rows, _ = pages_of(client, "/stores/sessions/fetch", key="k03", limit=limit)
        assert [(row["window_start"], row["window_end"]) for row in rows] == [(1_003, 1_003), (2_003, 2_003)]
        rows, _ = pages_of(client, "/stores/sessions/range", limit=limit)
        assert len(rows) == 2 * KEYS
        assert pages_of(client, "/stores/windows/fetch", key="nope")[0] == []

    def test_a_query_can_wait_for_an_epoch(self, client: AsgiClient, monkeypatch: pytest.MonkeyPatch) -> None:
        assert client.get("/stores/words/get", key="w03", at_least_epoch=1)[0] == 200
        monkeypatch.setattr("penstock.admin.queries.WAIT_S", 0.05)
        status, answer = client.get("/stores/words/get", key="w03", at_least_epoch=2)
        assert (status, answer["code"]) == (503, "not_ready")
        assert "Epoch 2 is not committed yet; the last is 1" in answer["error"]

    def test_a_restoring_application_says_so(self) -> None:
        for path in ("/stores", "/stores/words/get", "/stores/words/range"):
            status, answer = AsgiClient(None).get(path, **({"key": "a"} if path.endswith("get") else {}))
            assert (status, answer["code"]) == (503, "not_ready")
            assert "restored (40 %)" in answer["error"]


@pytest.mark.security(8)
class TestBadQueries:
    def test_an_unknown_store_is_not_found(self, client: AsgiClient) -> None:
        for path, parameters in (("get", {"key": "a"}), ("range", {}), ("fetch", {"key": "a"})):
            status, answer = client.get(f"/stores/wrods/{path}", **parameters)
            assert (status, answer["code"]) == (404, "unknown_store")
            assert "brief, last" in answer["error"]

    @pytest.mark.parametrize("limit", ["-1", "0", "1e12", "1000000000000", "NaN", "abc", "", " 5", "5.0", "٣", "1001", "+5"])
    @pytest.mark.parametrize("path", ["/stores/words/range", "/stores/windows/fetch"])
    def test_an_invalid_limit_is_refused(self, client: AsgiClient, path: str, limit: str) -> None:
        key = {"key": "k03"} if path.endswith("fetch") else {}
        status, answer = client.get(path, limit=limit, **key)
        assert (status, answer["error"]) == (400, f"Invalid limit {limit!r}: expected a whole number from 1 to 1000.")

    @pytest.mark.parametrize(
        ("path", "query"),
        [
            ("words/get", ""),
            ("words/get", "key=a&key=b"),
            ("words/get", "key=a&colour=red"),
            ("words/get", "key=%ff%fe"),
            ("words/get", "key=%ed%a0%80"),
            ("words/get", "&".join(f"a{number}=1" for number in range(100))),
            ("words/get", "key=" + "a" * 10_000_000),
            ("words/get", "key=a&as_of=5"),
            ("words/get", "key=a&at_least_epoch=-1"),
            ("words/fetch", "key=a"),
            ("windows/get", "key=a"),
            ("windows/fetch", "key=a&from=5&to=4"),
            ("windows/fetch", "key=a&from=tomorrow"),
            ("windows/fetch", "key=a&from=-5"),
            ("windows/fetch", "key=a&from=2024-01-01T00:00:00"),
            ("windows/range", "prefix=a"),
            ("windows/range", "from_time=99999999999999999999"),
            ("words/range", "from=b&to=a"),
            ("words/range", "prefix=a&from=b"),
            ("words/range", "cursor=abc"),
            ("words/range", "cursor=%00"),
            ("words/range", "cursor=" + b64encode(b"\x93\xc4\x01a\x00\x00" * 3).decode()),
            ("versions/get", "key=a&as_of=NaN"),
        ],
    )
    def test_a_bad_query_is_refused_with_a_reason(self, client: AsgiClient, path: str, query: str) -> None:
        status, answer = client.request("GET", f"/stores/{path}", query.encode())
        assert status == 400
        assert answer["error"]
        assert len(answer["error"]) < 300

    def test_a_cursor_of_another_store_is_harmless(self, client: AsgiClient) -> None:
        _, page = client.get("/stores/windows/range", limit=1)
        for store in ("words", "sessions", "versions", "last"):
            assert client.get(f"/stores/{store}/range", cursor=page["cursor"])[0] in {200, 400}

    def test_a_page_is_bounded_in_bytes_and_time(self, client: AsgiClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pages, "PAGE_BYTES", 200)
        rows, number = pages_of(client, "/stores/words/range", limit=1_000)
        assert (len(rows), number > 5) == (KEYS + 2, True)
        monkeypatch.setattr(pages, "PAGE_S", -1.0)
        status, answer = client.get("/stores/words/range")
        assert (status, answer["code"]) == (400, "query_timeout")

    def test_deep_pages_cost_no_more_than_the_first(self, on_lmdb: Lanes) -> None:
        on_lmdb.step([Raw(b"k", " ".join(f"w{number:05}" for number in range(20_000)).encode(), 1)])
        state = on_lmdb.state()
        client = AsgiClient(state)
        _, page = client.get("/stores/words/range", **{"from": "w19900", "limit": "10"})

        def seconds(**parameters: str) -> float:
            began = time.perf_counter()
            assert client.get("/stores/words/range", limit="10", **parameters)[0] == 200
            return time.perf_counter() - began

        first = min(seconds() for _ in range(10))
        deep = min(seconds(cursor=page["cursor"]) for _ in range(10))
        state.close()
        assert deep < 3 * first + 0.005

    def test_a_huge_scan_does_not_hold_up_a_commit_or_a_point_read(self, on_lmdb: Lanes) -> None:
        on_lmdb.step([Raw(b"k", " ".join(f"w{number:05}" for number in range(20_000)).encode(), 1)])
        state = on_lmdb.state()
        client = AsgiClient(state)
        ended = threading.Event()

        def scan() -> None:
            store = StoreAnswers(state, "words")
            while not ended.is_set():
                assert json.loads(store.range(Bounds(), 20_000, None))["rows"]  # all rows, or as many as its time limit allows

        threads = [threading.Thread(target=scan) for _ in range(2)]
        for thread in threads:
            thread.start()
        renewals, reads = [], []
        for _ in range(20):
            on_lmdb.step([Raw(b"k", b"w00007", 1)])
            began = time.perf_counter()
            state.after_commit(on_lmdb.epoch)
            renewals.append(time.perf_counter() - began)
            began = time.perf_counter()
            assert client.get("/stores/words/get", key="w00007")[1]["epoch"] == on_lmdb.epoch
            reads.append(time.perf_counter() - began)
        ended.set()
        for thread in threads:
            thread.join(20)
        state.close()
        # A thread waits 5 ms for each thread that computes; it must not also wait for a scan of 20,000 rows.
        assert sorted(renewals)[10] < 0.05
        assert sorted(reads)[10] < 0.2


@pytest.mark.security(9)
class TestBadBodies:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"null",
            b"[]",
            b'"keys"',
            b'{"keys": "a"}',
            b'{"keys": {"a": 1}}',
            b'{"keys": [], "keys": []}',
            b'{"keys": [], "limit": 1}',
            b'{"keys": [NaN]}',
            b'{"keys": [Infinity]}',
            b'{"keys": [1e400]}',
            b'{"keys": [' + b"9" * 5_000 + b"]}",
            b'{"keys": ["\\ud800"]}',
            b'{"keys": ["\xed\xa0\x80"]}',
            b'{"keys": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
            b'{"keys": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
            json.dumps({"keys": ["a"] * 1_001}).encode(),
            b'{"keys": ["' + b"a" * 2_000_000 + b'"]}',
            b"\xff\xfe\x00",
        ],
        ids=range(20),
    )
    def test_a_bad_body_is_refused(self, client: AsgiClient, body: bytes) -> None:
        status, answer = client.post("/stores/last/get", body)
        assert status == 400
        assert len(answer["error"]) < 300

    @pytest.mark.parametrize(
        "body",
        [{}, {"sql": 5}, {"sql": "select 1", "limit": -1}, {"sql": "select 1", "limit": 1.5}, {"sql": "select 1", "limit": True}],
    )
    def test_a_bad_sql_body_is_refused(self, client: AsgiClient, body: object) -> None:
        assert client.post("/sql", body)[0] == 400
