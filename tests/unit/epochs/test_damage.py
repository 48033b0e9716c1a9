"""A store whose file was damaged anywhere: the results of later epochs are right, because it is rebuilt or was not hurt.

LMDB maps its file into memory, so a damaged one may bring the process down: each case runs in a process of its own, and one that
dies is tried again as Spark would, by a retry that does not look at what is there.
"""

from __future__ import annotations

import faulthandler
import os
import random
import shutil
import signal
import struct
import traceback
import warnings
from collections.abc import Callable

import pytest

from penstock import StreamsBuilder, Topology
from tests.unit.epochs.application import Application, Raw

pytestmark = pytest.mark.security(26)

PAGE = 4_096
BRANCH, META = 1, 8
KEYS = [b"key-%03d" % number + b"x" * 250 for number in range(50)]
PATIENCE_S = 30


def counts() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
    return builder.build()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """One lane with a tree of two levels, pages that are free, and a mark that is behind."""
    application = Application(tmp_path_factory.mktemp("damage"), counts)
    application.start(1)
    for first in range(3):
        application.step([Raw(key, b"", 0) for key in KEYS[first::2]])
    application.note_mark()
    application.step([Raw(key, b"", 0) for key in KEYS[::5]])
    application.step([Raw(key, b"", 0) for key in KEYS[::7]])
    return application


def in_child(call: Callable[[], str]) -> str:
    """What a process of its own has to say, or how it died."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside other threads: the child only uses its own
        child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE_S)
        faulthandler.disable()
        try:
            said = call()
        except BaseException:  # noqa: BLE001 - for the parent to judge
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    return answer if os.WIFEXITED(status) else f"died of {signal.Signals(os.WTERMSIG(status)).name}"


def go_on(app: Application, is_retry: bool) -> str:
    """A start and some epochs: every count goes on where it was."""
    (restored,) = app.start(1, is_retry)
    app.step([Raw(key, b"", 0) for key in KEYS])
    app.step([Raw(key, b"", 0) for key in (*KEYS[::3], b"new")])
    app.check()
    seen: dict[bytes | None, int] = {}
    for _, key, value, _ in app.sent:
        assert value is not None
        assert int.from_bytes(value, "big") == seen.get(key, 0) + 1, key
        seen[key] = seen.get(key, 0) + 1
    return restored.found


def outcome(app: Application, data: bytes) -> str:
    """What becomes of a lane whose file has this content."""
    directory = app.lane_directory(0)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "data.mdb").write_bytes(data)
    first = in_child(lambda: go_on(app, is_retry=False))
    if first.startswith("died of") and first != "died of SIGALRM":
        return f"{first}, then {in_child(lambda: go_on(app, is_retry=True))}"
    return first


def is_right(said: str) -> bool:
    return said in {"up to date", "behind", "rebuilt"} or (said.startswith("died of") and said.endswith(", then rebuilt"))


def places(data: bytes, chance: random.Random) -> list[int]:
    """Where to flip a bit: in what the file knows about itself, in what leads to entries, in the entries."""
    found = []
    for start in range(0, len(data), PAGE):
        _, _, flags, _, upper = struct.unpack_from("<QHHHH", data, start)
        if flags & META:
            found += chance.sample(range(start + 16, start + 16 + 136), 4)
        elif flags & BRANCH:
            found += chance.sample(range(start + upper, start + PAGE), 4)
        else:
            found.append(start + chance.choice([chance.randrange(16), chance.randrange(16, PAGE)]))
    return found


@pytest.fixture(scope="module")
def intact(app: Application) -> bytes:
    return (app.lane_directory(0) / "data.mdb").read_bytes()


@pytest.mark.slow  # dozens of lives in processes of their own
def test_no_flipped_bit_leads_to_a_wrong_result(app: Application, intact: bytes) -> None:
    chance = random.Random(1)
    outcomes = {}
    for place in places(intact, chance):
        data = bytearray(intact)
        data[place] ^= 1 << chance.randrange(8)
        outcomes[place] = outcome(app, bytes(data))
    assert {place: said for place, said in outcomes.items() if not is_right(said)} == {}
    assert {"up to date", "rebuilt"} <= set(outcomes.values())


def test_no_page_that_leads_to_entries_can_lead_astray(app: Application, intact: bytes) -> None:
    """A key in a branch page leads to entries; with a wrong key, existing entries would not be found."""
    starts = [start for start in range(0, len(intact), PAGE) if struct.unpack_from("<H", intact, start + 10)[0] == BRANCH]
    data = bytearray(intact)
    for start in starts:
        upper = struct.unpack_from("<H", intact, start + 14)[0]
        for place in range(start + upper, start + PAGE):
            if intact[place : place + 4] == b"key-":
                data[place + 5] ^= 1 << 2
    assert starts
    assert bytes(data) != intact
    assert is_right(said := outcome(app, bytes(data))), said


@pytest.mark.parametrize("pages", [0, 1, 2, 5, -1])
def test_a_file_that_is_cut_off_is_rebuilt(app: Application, intact: bytes, pages: int) -> None:
    kept = intact[: PAGE * pages] if pages >= 0 else intact[: len(intact) + PAGE * pages]
    assert is_right(said := outcome(app, kept)), said


def test_the_file_itself_is_fine(app: Application, intact: bytes) -> None:
    assert outcome(app, intact) == "up to date"
