"""Starts the lane server of a host, from a task on it: one for all lanes of a start, which ends with it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.errors import StateError
from penstock.state.remote.accepting import ANY_PORT, Ports
from penstock.state.remote.server import Serving, is_alive

_NOTE = "server"
_MODULE = "penstock.state.remote.server"
_CURE = "If cluster_ports is set, one of its ports must be free there."
_started_here: list[subprocess.Popen[bytes]] = []
"""They outlive this process; Python would warn if nobody knew them."""


def ensure_server(root: Path, lanes: Path, engine: str, host: str, key: bytes, incarnation: str, ports: Ports = ANY_PORT) -> int:
    """Return the port of the server of this host, which is started if need be. `root` is the application's directory."""
    with (root / f"{_NOTE}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note = root / _NOTE
        known = json.loads(note.read_text()) if note.exists() else {}
        if known and _is_server(known["pid"]):
            if known["incarnation"] == incarnation and is_alive(known["until"]):
                return int(known["port"])  # which another executor of the host may have started
            os.kill(known["pid"], signal.SIGTERM)
        owner = _executor()
        server = _started(Serving(str(lanes), engine, host, key, owner, ports))
        note.write_text(json.dumps({"incarnation": incarnation, "until": owner, **server}))
        note.chmod(0o600)
        return server["port"]


def _started(serving: Serving) -> dict[str, int]:
    """Start a server; return its process and its port."""
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(serving.encode())
    process.stdin.close()
    port = process.stdout.readline()
    process.stdout.close()
    if not port:
        raise StateError(f"The lane server of {serving.host} has not started (exit code {process.wait()}). {_CURE}")
    _started_here[:] = [process, *(before for before in _started_here if before.poll() is None)]
    return {"pid": process.pid, "port": int(port)}


def _is_server(pid: int) -> bool:
    """Whether a process is a lane server, and not another one that has got its number since."""
    try:
        return _MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _executor() -> int:
    """Return the process that a server lives as long as: the executor, whose daemon has forked this worker."""
    daemon = os.getppid()
    parent = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    return int(parent)
