"""Where things are, and the tools that must be installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .errors import BenchError

BENCH = Path(__file__).resolve().parent.parent
REPO = BENCH.parent
OUT = BENCH / "out"
WORKER_EBIN = OUT / "ebin"


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BenchError(f"{name} is not installed or not in PATH (on Debian: run `make deps`, or apt install erlang)")
    return path


def compile_erlang(sources: list[Path], target: Path, *options: str) -> None:
    """Compiles `sources` into `target`. Raises BenchError with the compiler's own words."""
    target.mkdir(parents=True, exist_ok=True)
    command = [tool("erlc"), *options, "-o", str(target), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"erlc failed:\n{done.stdout}{done.stderr}")


def compile_workers() -> None:
    compile_erlang(sorted((BENCH / "src").glob("*.erl")), WORKER_EBIN, "-Werror")
