"""An sshd of the test's own: on loopback, with keys and configuration that last as long as the test."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ADDRESSES = ("127.0.0.1", "127.0.0.2")


class CannotStart(Exception):
    """Says why there is no sshd."""


class Sshd:
    def __init__(self) -> None:
        program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin")
        if program is None or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
            raise CannotStart("ssh, ssh-keygen or sshd is missing (on Debian: openssh-client, openssh-server)")
        self._directory = tempfile.TemporaryDirectory(prefix="inet_rdma_sshd_")
        self.path = Path(self._directory.name)
        self.port = free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path / name], check=True)
        shutil.copy(self.path / "user.pub", self.path / "authorized_keys")
        host_key = (self.path / "host.pub").read_text().split()[:2]
        known = [f"[{address}]:{self.port} {' '.join(host_key)}\n" for address in ADDRESSES]
        (self.path / "known_hosts").write_text("".join(known))
        (self.path / "config").write_text("\n".join([
            f"Port {self.port}", *[f"ListenAddress {address}" for address in ADDRESSES],
            f"HostKey {self.path}/host", f"AuthorizedKeysFile {self.path}/authorized_keys", f"PidFile {self.path}/pid",
            "PasswordAuthentication no", "KbdInteractiveAuthentication no", "UsePAM no", "StrictModes no",
            "PermitRootLogin prohibit-password", f"AllowUsers {getpass.getuser()}", "",
        ]))
        if os.geteuid() == 0:
            # Where Debian's sshd drops its rights to; a running system makes it at boot.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._log = open(self.path / "log", "wb")
        command = [program, "-D", "-e", "-f", str(self.path / "config")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=self._log)
        try:
            self._try()
        except BaseException:
            self.close()
            raise

    @property
    def options(self) -> list[str]:
        """For the command line of bench/run.py cluster."""
        words = ["--port", str(self.port), "--identity", str(self.path / "user"), "--ssh", "ssh -F none"]
        for option in (f"UserKnownHostsFile={self.path}/known_hosts", "IdentitiesOnly=yes", "IdentityAgent=none"):
            words += ["--ssh-option", option]
        return words

    def _try(self) -> None:
        ssh = ["ssh", "-F", "none", "-p", str(self.port), "-i", str(self.path / "user"), "-o", "BatchMode=yes",
               "-o", f"UserKnownHostsFile={self.path}/known_hosts", "-o", "IdentitiesOnly=yes", ADDRESSES[1], "true"]
        deadline = time.monotonic() + 30
        while True:
            done = subprocess.run(ssh, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            if done.returncode == 0:
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self.path / "log").read_text(errors="replace")
                raise CannotStart(f"sshd takes no connection: {done.stderr.strip()} {log.strip()}")
            time.sleep(0.1)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()
        self._directory.cleanup()


def free_port() -> int:
    """One that is free on all addresses of the test."""
    with socket.create_server(("0.0.0.0", 0)) as trial:
        return int(trial.getsockname()[1])
