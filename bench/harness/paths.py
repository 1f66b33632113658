"""Where things are, and the tools that must be installed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from .errors import BenchError

BENCH = Path(__file__).resolve().parent.parent
REPO = BENCH.parent
OUT = BENCH / "out"
WORKER_EBIN = OUT / "ebin"


def local_build() -> Path:
    """The application directory of what `make build` made here."""
    application = REPO / "_build" / "dev" / "lib" / "inet_rdma"
    if not (application / "ebin" / "inet_rdma_dist.beam").exists():
        raise BenchError("inet_rdma is not built yet: run `make build` first")
    if not (application / "priv" / "inet_rdma_nif.so").exists():
        raise BenchError("the native library priv/inet_rdma_nif.so is missing: run `make build` first")
    return application


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BenchError(f"{name} is not installed or not in PATH (on Debian: run `make deps`, or apt install erlang)")
    return path


@functools.cache
def erl_program() -> str:
    """The `erl` inside the OTP that PATH leads to: that in PATH may be a script that needs the user's HOME."""
    query = 'io:format("~ts", [code:root_dir()]), halt().'
    command = [tool("erl"), "-noinput", "-boot", "start_clean", "-eval", query]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    real = Path(done.stdout) / "bin" / "erl"
    return str(real) if done.returncode == 0 and real.exists() else tool("erl")


def ask_erl(expression: str) -> str:
    """The text that an Erlang expression gives."""
    query = f'io:format("~ts", [{expression}]), halt().'
    command = [tool("erl"), "-noinput", "-boot", "start_clean", "-eval", query]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


@functools.cache
def otp_release() -> str:
    return ask_erl("erlang:system_info(otp_release)")


def make_home(home: Path, cookie: str) -> Path:
    """A new directory, HOME of nodes, with their cookie, which any user could read on a command line."""
    home.mkdir(mode=0o700)
    with open(os.open(home / ".erlang.cookie", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w",
              encoding="ascii") as file:
        file.write(cookie)
    return home


def compile_erlang(sources: list[Path], target: Path, *options: str) -> None:
    """Compiles `sources` into `target`. Raises BenchError with the compiler's own words."""
    target.mkdir(parents=True, exist_ok=True)
    command = [tool("erlc"), *options, "-o", str(target), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"erlc failed:\n{done.stdout}{done.stderr}")


def compile_c(source: Path, target: Path, *options: str) -> None:
    """Compiles a C program or library if its source is newer. Raises BenchError with the compiler's own words."""
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [tool("cc"), "-O2", "-Wall", "-Wextra", "-Werror", *options, "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"cc failed:\n{done.stdout}{done.stderr}")


def compile_workers() -> None:
    compile_erlang(sorted((BENCH / "src").glob("*.erl")), WORKER_EBIN, "-Werror")
