"""The control channel: orders to a node as Erlang terms, answers as JSON, one line each, on a loopback socket."""

from __future__ import annotations

import json
import secrets
import socket
import time
from typing import Any

from .errors import MeasurementError


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
    """One node's end. Answers come in the order of the orders, so several nodes can work at the same time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._input = b""
        self._last_id = 0
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, order: Any) -> int:
        self._last_id += 1
        try:
            self._connection.sendall(f"{term((self._last_id, order))}.\n".encode())
        except OSError as error:
            raise MeasurementError(f"the node is gone ({error})") from error
        return self._last_id

    def answer(self, order_id: int, timeout_s: float) -> dict[str, Any]:
        reply = self.line(timeout_s)
        if "error" in reply:
            raise MeasurementError(f"a node refused an order: {reply['error']}")
        if reply.get("id") != order_id:
            raise MeasurementError(f"answer {reply.get('id')} to order {order_id}")
        return reply

    def line(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._input:
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                chunk = self._connection.recv(65536)
            except TimeoutError as error:
                raise MeasurementError(f"a node did not answer within {timeout_s:.0f} s") from error
            except OSError as error:
                raise MeasurementError(f"the node is gone ({error})") from error
            if not chunk:
                raise MeasurementError("the node is gone (it closed its control connection)")
            self._input += chunk
        line, self._input = self._input.split(b"\n", 1)
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        self._connection.close()


class Listener:
    """Where the nodes of a cluster report. A secret keeps strangers out."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(16)
        self._socket = socket.create_server(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        """For the environment variable INET_RDMA_BENCH of a node."""
        return f"{self._socket.getsockname()[1]}:{self._token}"

    def accept(self, timeout_s: float) -> tuple[Channel, dict[str, Any]] | None:
        """A node's channel and the facts that it reports of itself, or None when none came in time."""
        self._socket.settimeout(timeout_s)
        try:
            connection, _ = self._socket.accept()
        except TimeoutError:
            return None
        channel = Channel(connection)
        facts = channel.line(10.0)
        if facts.get("token") != self._token:
            channel.close()
            return None
        return channel, facts

    def close(self) -> None:
        self._socket.close()
