"""A cluster of real nodes, each an operating-system process, in a full mesh over one carrier."""

from __future__ import annotations

import secrets
import time
from types import TracebackType
from typing import Any

from .carriers import RDMA, Carrier
from .control import Atom
from .errors import MeasurementError
from .hosts import Node, ThisHost, close_all, open_all
from .place import Place

# Far more than it takes, also on a slow machine: a node that ends during its start is seen at once.
START_TIMEOUT_S = 120.0
ORDER_TIMEOUT_S = 60.0
LINK_TIMEOUT_S = 15.0
PROOF_TIMEOUT_S = 10.0


class Cluster:
    """`with Cluster(...) as cluster:` starts the nodes, joins them, checks the links, and ends them after all."""

    def __init__(self, carrier: Carrier, size: int, erl_flags: list[str], places: list[Place] | None = None) -> None:
        """One node at each of the first `size` places; without any, all on this machine."""
        self.carrier = carrier
        self._erl_flags = erl_flags
        self._places = (places or [Place(ThisHost())] * size)[:size]
        self.hosts = list({id(place.host): place.host for place in self._places}.values())
        # Hosts that the caller gives belong to the caller, which uses them again: they are not closed here.
        self._own_hosts = [] if places else self.hosts
        self.nodes: list[Node] = []

    def __enter__(self) -> Cluster:
        try:
            self._start()
            self._join()
            self._check_links()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        names = [node.name for node in self.nodes]
        for host in self.hosts:
            host.end(names)
        close_all(self._own_hosts)

    def names(self, but: Node | None = None) -> list[Atom]:
        return [Atom(node.name) for node in self.nodes if node is not but]

    def ask(self, node: Node, order: Any, timeout_s: float = ORDER_TIMEOUT_S) -> dict[str, Any]:
        return self.ask_all({node: order}, timeout_s)[node]

    def ask_all(self, orders: dict[Node, Any], timeout_s: float = ORDER_TIMEOUT_S) -> dict[Node, dict[str, Any]]:
        """Gives each node its order, then collects the answers: the nodes work at the same time."""
        current = None
        try:
            posted = []
            for current, order in orders.items():
                posted.append((current, current.post(order)))
            answers = {}
            for current, order_id in posted:
                answers[current] = current.answer(order_id, timeout_s)
            return answers
        except MeasurementError as error:
            logs = [f"  log of {node.name}:\n{node.last_words()}" for node in self.nodes if node.last_words()]
            raise MeasurementError("\n".join([f"{current.name if current else '?'}: {error}", *logs])) from error

    def _start(self) -> None:
        open_all(self.hosts)
        run, cookie = secrets.token_hex(4), secrets.token_hex(16)
        for number, place in enumerate(self._places, 1):
            name = f"bench_{run}_{number}"
            # The first value of a flag that is given twice counts.
            flags = [*place.flags(name), *self.carrier.flags, *self._erl_flags,
                     "-kernel", "net_setuptime", "60"]
            self.nodes.append(place.host.start(place.name(name), cookie, flags))
        deadline = time.monotonic() + START_TIMEOUT_S
        for node in self.nodes:
            try:
                node.await_report(max(0.001, deadline - time.monotonic()))
            except MeasurementError as error:
                where = f" at {node.host.name}" if node.host not in self._own_hosts else ""
                words = node.last_words()
                told = f"; its last words:\n{words}" if words else ""
                raise MeasurementError(
                    f"a node over {self.carrier.name}{where} did not start: {error}{told}") from error

    def _join(self) -> None:
        for index, node in enumerate(self.nodes[:-1]):
            others = [Atom(other.name) for other in self.nodes[index + 1:]]
            refused = self.ask(node, (Atom("connect"), others))["refused"]
            if refused:
                words = "\n".join(each.last_words() for each in self.nodes)
                raise MeasurementError(f"{node.name} cannot connect to {', '.join(refused)}; the nodes' logs:\n{words}")

    def _check_links(self) -> None:
        """Waits until every node shows its links to all others, each one of the carrier.

        The node that was called sees a link a moment later than the caller, and inet_rdma may list it later still. A
        link over RDMA begins on TCP and moves by its traffic: the nodes make some.
        """
        if self.carrier.link == RDMA:
            self.ask_all({node: Atom("earn") for node in self.nodes})
        began = time.monotonic()
        while True:
            wrong, timeout_s = self._wrong_links()
            if wrong is None:
                return
            if time.monotonic() - began > timeout_s:
                raise MeasurementError(wrong)
            time.sleep(0.02)

    def _wrong_links(self) -> tuple[str | None, float]:
        """What is wrong with the links, and how long it may be so after the connect."""
        answers = self.ask_all({node: Atom("links") for node in self.nodes})
        links = {node: answer["links"] for node, answer in answers.items()}
        for node, own in links.items():
            if set(own) != set(self.names(but=node)):
                return f"{node.name} is linked to {sorted(own)}, not to all of the cluster", LINK_TIMEOUT_S
        for node, own in links.items():
            wrong = [f"{peer}: {why}" for peer, link in own.items() if (why := self.carrier.objection(link))]
            if wrong:
                words = node.last_words()
                return (f"{node.name} does not run over {self.carrier.name}: {'; '.join(wrong)}"
                        + (f"; its log:\n{words}" if words else "")), PROOF_TIMEOUT_S
        return None, 0.0
