"""A real PostgreSQL with a database of its own: `with Postgres() as server: psycopg.connect(server.dsn)`."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess

from verification.harness.processes import PARTS, HarnessError, free_port, wait_until
from verification.harness.server import Server

PROGRAMS = PARTS / "postgres" / "bin"
START_TIMEOUT_S = 60
_OPTIONS = ("-c", "fsync=off", "-c", "jit=off", "-c", "max_connections=20", "-c", "unix_socket_directories=")
_ACCESS_TO_FILES = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")


class Postgres(Server):
    """The server's process. It keeps its port and its data from one start to the next until it is closed."""

    def __init__(self) -> None:
        if not (PROGRAMS / "postgres").exists():
            raise HarnessError(f"no PostgreSQL in {PROGRAMS}; run `make setup`")
        super().__init__("PostgreSQL", "postgres-")
        self._port = free_port()

    @property
    def dsn(self) -> str:
        """How to connect."""
        return f"host=127.0.0.1 port={self._port} user=postgres dbname=postgres"

    def start(self) -> None:
        """Start it with its existing data, and wait until it answers."""
        data = self._directory / "data"
        if not data.exists():
            shutil.chown(self._directory, *self._owner())
            command = [str(PROGRAMS / "initdb"), f"--pgdata={data}", "--username=postgres", "--auth=trust", "--no-sync"]
            subprocess.run([*self._as_owner(), *command], check=True, capture_output=True)
        address = ("-c", "listen_addresses=127.0.0.1", "-p", str(self._port))
        self._run([*self._as_owner(), str(PROGRAMS / "postgres"), "-D", str(data), *address, *_OPTIONS])
        wait_until("PostgreSQL answers", self._answers, START_TIMEOUT_S)

    def _answers(self) -> bool:
        self._check_it_starts()
        command = [str(PROGRAMS / "pg_isready"), "--host=127.0.0.1", f"--port={self._port}", "--quiet"]
        return subprocess.run(command, check=False).returncode == 0 and self._listens()

    def _listens(self) -> bool:
        with socket.socket() as trying:
            return trying.connect_ex(("127.0.0.1", self._port)) == 0

    @staticmethod
    def _owner() -> tuple[str, int]:
        """The user and group of its files; it refuses to run as root."""
        user = pwd.getpwuid(os.geteuid()) if os.geteuid() else pwd.getpwnam("nobody")
        return user.pw_name, user.pw_gid

    def _as_owner(self) -> list[str]:
        if os.geteuid():
            return []
        user, group = self._owner()
        # root's temporary directory and checkout may be closed to others: keep root's access to files
        return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *_ACCESS_TO_FILES]
