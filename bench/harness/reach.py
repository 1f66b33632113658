"""How an agent comes to run: the command that starts it, and what it is sent first."""

from __future__ import annotations

import io
import sys
import zipfile

from . import paths

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


def archive() -> bytes:
    """What an agent needs: its modules and the workers' sources."""
    files = {f"harness/{name}.py": paths.BENCH / "harness" / f"{name}.py" for name in HARNESS}
    files |= {f"src/{path.name}": path for path in (paths.BENCH / "src").glob("*.erl")}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name, path in sorted(files.items()):
            target.write(path, name)
    return packed.getvalue()


def opening(packed: bytes, directory: str | None) -> bytes:
    """What an agent reads first. It makes its own directory in `directory`, or in the temporary one."""
    unpack = UNPACK.format(directory=directory, size=len(packed)).encode()
    return b"%d\n%s%s" % (len(unpack), unpack, packed)
