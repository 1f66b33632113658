"""A run from boot to the command's exit status: one or two guests, what they say, how long they may take."""

import os
import secrets
import selectors
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .errors import Failed, TimedOut
from .guest import NETWORKS, Guest

GUEST_PROGRAM = Path(__file__).resolve().parent.parent / "guest"
# What the guests' commands see of the environment of the run.
INHERITED = ("PATH", "HOME", "USER", "CI", "MIX_ENV", "ERL_FLAGS", "ERL_ZFLAGS", "TERM")
INHERITED_PREFIX = "INET_RDMA_"


class Session:
    """A context: on leaving it, however that happens, the guests are ended."""

    def __init__(self, cache, checkout, results, guests, processors):
        results.mkdir(parents=True, exist_ok=True)
        # With our process id: several runs share a checkout, and a run that tidies up can see which of them live.
        self._job = Path(tempfile.mkdtemp(prefix=f"run.{os.getpid()}.", dir=cache))
        self._cache = cache
        self._checkout = checkout
        self._guests = [Guest(number + 1, guests, processors, self._job, results) for number in range(guests)]
        self._token = secrets.token_hex(8)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for guest in self._guests:
            guest.stop()
        if kind is None:
            shutil.rmtree(self._job, ignore_errors=True)

    def boot(self, kernel, command, timeout_s):
        self._write_job(command)
        cables = [socket.socketpair() for _ in range(NETWORKS if len(self._guests) == 2 else 0)]
        for index, guest in enumerate(self._guests):
            guest.start(kernel, GUEST_PROGRAM, [ends[index] for ends in cables])
        deadline = time.monotonic() + timeout_s
        for guest in self._guests:
            print(f"{guest.name}: {self._greeting(guest, deadline, timeout_s)}", flush=True)

    def run(self, output, timeout_s):
        """Starts the command in guest 1, copies what it prints, gives its exit status."""
        first = self._guests[0]
        first.port.sendall(f"run {self._token}\n".encode())
        return self._copy(first, output, time.monotonic() + timeout_s, timeout_s)

    def shell(self, input_fd, output):
        """A shell in guest 1 on this terminal, which the caller has made raw."""
        first = self._guests[0]
        first.port.sendall(f"shell {self._token}\n".encode())
        return self._copy(first, output, None, 0, input_fd)

    def check_kernels(self):
        for guest in self._guests:
            guest.check_kernel()

    def _write_job(self, command):
        environment = {name: value for name, value in os.environ.items()
                       if name in INHERITED or name.startswith(INHERITED_PREFIX)}
        environment.setdefault("HOME", "/root")
        environment |= {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "INET_RDMA_VM_RESULTS": "/mnt",
                        "INET_RDMA_VM_GUESTS": str(len(self._guests)), "vm_checkout": str(self._checkout)}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
        (self._job / "env").write_text("\n".join(lines) + "\n")
        (self._job / "command").write_text(f"cd {shlex.quote(str(self._checkout))}\nexec {shlex.join(command)}\n")
        if len(self._guests) == 2:
            self._write_keys()

    def _write_keys(self):
        keys = self._cache / "ssh"
        if not keys.exists():
            fresh = Path(tempfile.mkdtemp(dir=self._cache))
            for command in (["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guests", "-f", fresh / "client_key"],
                            ["dropbearkey", "-t", "ed25519", "-f", fresh / "host_key"]):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            fresh.rename(keys)
        target = self._job / "ssh"
        shutil.copytree(keys, target)
        # A session has the environment, directory and limits of the command in guest 1.
        script = self._job / "login"
        script.write_text(f". {shlex.quote(str(self._job / 'env'))}\ncd \"$vm_checkout\"\nulimit -l unlimited\n"
                          'exec sh -c "${SSH_ORIGINAL_COMMAND:-exec bash -i}"\n')
        public = (keys / "client_key.pub").read_text()
        (target / "authorized_keys").write_text(f'command="sh {script}" {public}')
        (target / "config").write_text("\n".join((
            "Host *",
            "User root",
            "IdentityFile ~/.ssh/client_key",
            "IdentitiesOnly yes",
            "PreferredAuthentications publickey",
            "StrictHostKeyChecking no",
            "UserKnownHostsFile /dev/null",
            "LogLevel ERROR",
            "Ciphers aes128-ctr,chacha20-poly1305@openssh.com",
            # A guest that is gone says nothing.
            "ServerAliveInterval 5",
            "ServerAliveCountMax 3",
            "ControlMaster auto",
            "ControlPath /run/ssh-%C",
            "ControlPersist yes",
        )) + "\n")

    def _greeting(self, guest, deadline, timeout_s):
        said = b""
        for chunk in self._chunks(guest, deadline, f"{guest.name} did not boot within {timeout_s} s"):
            said += chunk
            if said.endswith(b"\n"):
                return said.decode().removeprefix("ready ").strip()
        raise Failed(f"{guest.name} ended while it booted\n{guest.tail()}")

    def _copy(self, guest, output, deadline, timeout_s, input_fd=None):
        """Until the line that only the guest's first process can write: a zero byte, our token, the status."""
        mark = f"\0{self._token} ".encode()
        held = b""
        for chunk in self._chunks(guest, deadline, f"the command did not end within {timeout_s} s", input_fd):
            held += chunk
            before, found, after = held.partition(mark)
            if found and b"\n" in after:
                output.write(before)
                output.flush()
                return int(after.split(b"\n")[0])
            if not found:
                keep = next((n for n in range(min(len(mark), len(held)), 0, -1) if held.endswith(mark[:n])), 0)
                output.write(held[:len(held) - keep])
                output.flush()
                held = held[len(held) - keep:]
        guest.check_kernel()
        raise Failed(f"{guest.name} ended before its command\n{guest.tail()}")

    def _chunks(self, guest, deadline, late, input_fd=None):
        """What the guest writes, until it ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(guest.port, selectors.EVENT_READ)
            if input_fd is not None:
                selector.register(input_fd, selectors.EVENT_READ)
            while True:
                left_s = None if deadline is None else deadline - time.monotonic()
                ready = selector.select(left_s) if left_s is None or left_s > 0 else []
                if not ready:
                    self.check_kernels()
                    raise TimedOut("\n".join([late, *(other.tail() for other in self._guests)]))
                for key, _ in ready:
                    data = os.read(key.fd, 65536)
                    if key.fd == input_fd:
                        guest.port.sendall(data)
                    elif data:
                        yield data
                    else:
                        return
