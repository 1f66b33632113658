"""How an agent comes to run: the command that starts it, here or by ssh, and what it is sent first."""

from __future__ import annotations

import io
import shlex
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from . import paths

SSH_DEFAULTS = ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=3")
HARNESS = ("__init__", "agent", "control", "cpu", "environment", "errors", "paths")

# The first reads and runs the second, which reads the archive.
BOOT = "import sys;i=sys.stdin.buffer;exec(i.read(int(i.readline())))"
HERE = [sys.executable, "-B", "-c", BOOT]
UNPACK = """
if sys.version_info < (3, 10):
    sys.exit("Python 3.10 or later is needed, python3 is " + sys.version.split()[0])
import io, shutil, tempfile, zipfile
scratch = tempfile.mkdtemp(prefix="inet_rdma_bench_", dir={directory!r})
try:
    zipfile.ZipFile(io.BytesIO(i.read({size}))).extractall(scratch)
    sys.path.insert(0, scratch)
    from harness.agent import main
    main(i, scratch)
except BaseException:
    shutil.rmtree(scratch, ignore_errors=True)
    raise
"""


def archive(build: Path | None = None) -> bytes:
    """What an agent needs: its modules, the workers' sources and, if it is to be copied, a build of inet_rdma."""
    files = {f"harness/{name}.py": paths.BENCH / "harness" / f"{name}.py" for name in HARNESS}
    files |= {f"src/{path.name}": path for path in (paths.BENCH / "src").glob("*.erl")}
    if build is not None:
        found = [path for part in ("ebin", "priv") for path in (build / part).iterdir() if path.is_file()]
        files |= {f"build/{path.parent.name}/{path.name}": path for path in found}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name, path in sorted(files.items()):
            target.write(path, name)
    return packed.getvalue()


def opening(packed: bytes, directory: str | None) -> bytes:
    """What an agent reads first. It makes its own directory in `directory`, or in the host's temporary one."""
    unpack = UNPACK.format(directory=directory, size=len(packed)).encode()
    return b"%d\n%s%s" % (len(unpack), unpack, packed)


def shell_command() -> str:
    """For the shell that sshd starts, whichever it is."""
    return f"exec python3 -B -c {shlex.quote(BOOT)}"


@dataclass(frozen=True)
class Ssh:
    """How ssh is called, for all hosts or for one of them."""

    program: str = "ssh"
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    # What `ssh -o` takes. The first that ssh hears of an option counts, so these go before the defaults.
    options: tuple[str, ...] = field(default=())

    def command(self, host: str, *remote: str) -> list[str]:
        named = [("-l", self.user), ("-p", self.port), ("-i", self.identity)]
        flags = [word for flag, value in named if value is not None for word in (flag, str(value))]
        flags += [word for option in (*self.options, *SSH_DEFAULTS) for word in ("-o", option)]
        return [*shlex.split(self.program), "-T", *flags, "--", host, *remote]
