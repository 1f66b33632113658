"""A certificate authority and one certificate for all nodes of this machine, for the carriers over TLS."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import paths
from .addresses import ADDRESSES
from .errors import BenchError

# Keys of the curve that TLS 1.3 prefers; the handshake is not part of what is measured.
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
DAYS = "2"


def optfile(ktls: bool = False, hosts: Iterable[str] = ()) -> Path:
    """What `-ssl_dist_optfile` takes: both sides verify each other. Made again for each run, so it never expires.

    `hosts`: more that nodes have in their names.
    """
    directory = paths.OUT / "tls"
    directory.mkdir(parents=True, exist_ok=True)
    authority, authority_key = directory / "ca.pem", directory / "ca-key.pem"
    own = socket.gethostname().partition(".")[0]
    certificate, key = directory / "node.pem", directory / "node-key.pem"
    make(
        "-keyout", authority_key, "-out", authority, "-subj", "/CN=inet_rdma benchmark authority",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )
    make(
        "-keyout", key, "-out", certificate, "-subj", "/CN=inet_rdma benchmark node",
        "-CA", authority, "-CAkey", authority_key,
        # The hosts in the nodes' names: of two nodes, of a mesh, of two network namespaces.
        "-addext", "subjectAltName=" + ",".join(names(host) for host in ("localhost", own, *hosts, *ADDRESSES)),
        "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", "extendedKeyUsage=serverAuth,clientAuth",
    )
    files = f'{{cacertfile, "{authority}"}}, {{certfile, "{certificate}"}}, {{keyfile, "{key}"}}'
    common = f"{files}, {{verify, verify_peer}}"
    extra = ", {ktls, true}, {versions, ['tlsv1.3']}, {ciphers, [\"TLS_AES_256_GCM_SHA384\"]}" if ktls else ""
    written = directory / ("ktls.conf" if ktls else "tls.conf")
    written.write_text(
        f"[{{server, [{common}, {{fail_if_no_peer_cert, true}}{extra}]}},\n {{client, [{common}{extra}]}}].\n",
        encoding="utf-8",
    )
    return written


def names(host: str) -> str:
    """A host as a certificate names it. OTP 25 looks for an address among the names of DNS, too."""
    is_address = host.replace(".", "").isdigit()
    return f"DNS:{host},IP:{host}" if is_address else f"DNS:{host}"


def make(*options: str | Path) -> None:
    command = [paths.tool("openssl"), "req", "-x509", *KEY, "-days", DAYS, "-sha256", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"openssl made no certificate:\n{done.stderr}")
