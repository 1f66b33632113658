"""The control channel of a node: orders as Erlang terms, answers as JSON, one line each, on a loopback socket."""

from __future__ import annotations

import json
import secrets
import socket
from typing import Any

from .errors import MeasurementError

REPORT_TIMEOUT_S = 10.0


class Atom(str):
    """A string that is written as an Erlang atom."""


def term(value: Any) -> str:
    """`value` as Erlang text: Atom, str (a binary), int, list, tuple, dict (a map with atoms as keys)."""
    if isinstance(value, Atom):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, str):
        return '<<"' + value.replace("\\", "\\\\").replace('"', '\\"') + '">>'
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, list):
        return "[" + ",".join(term(item) for item in value) + "]"
    if isinstance(value, tuple):
        return "{" + ",".join(term(item) for item in value) + "}"
    if isinstance(value, dict):
        return "#{" + ",".join(f"{term(Atom(key))} => {term(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"no Erlang term for {type(value).__name__}")


class Channel:
    """The agent's end of a node's socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._input = b""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, line: str) -> None:
        try:
            self._connection.sendall(f"{line}\n".encode())
        except OSError as error:
            raise MeasurementError(f"the node is gone ({error})") from error

    def line(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next line. A timeout is of each read: it only ends connections of peers that send nothing."""
        while b"\n" not in self._input:
            try:
                self._connection.settimeout(timeout_s)
                chunk = self._connection.recv(65536)
            except OSError as error:
                raise MeasurementError(f"the node is gone ({error})") from error
            if not chunk:
                raise MeasurementError("the node is gone (it closed its control connection)")
            self._input += chunk
        line, self._input = self._input.split(b"\n", 1)
        try:
            reply: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise MeasurementError(f"not an answer: {line[:80]!r}") from error
        return reply

    def close(self) -> None:
        try:
            # Wakes the thread that reads it; close alone would not.
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()


class Listener:
    """Where the nodes of one host report. A secret keeps strangers out."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(16)
        self._socket = socket.create_server(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        """For the environment variable INET_RDMA_BENCH of a node."""
        return f"{self._socket.getsockname()[1]}:{self._token}"

    def accept(self) -> tuple[Channel, dict[str, Any]] | None:
        """Waits for a node: its channel and the facts that it reports of itself, or None for a stranger."""
        connection, _ = self._socket.accept()
        channel = Channel(connection)
        try:
            facts = channel.line(REPORT_TIMEOUT_S)
        except MeasurementError:
            facts = {}
        if facts.pop("token", None) != self._token:
            channel.close()
            return None
        return channel, facts
