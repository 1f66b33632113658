"""Sources of others that a measurement needs: fetched by git when they are, and not kept in the repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from . import paths
from .errors import BenchError

TIMEOUT_S = 120.0


def fetch(url: str, commit: str, target: Path) -> None:
    """Makes `target` a checkout of that commit, unless it is one. Raises BenchError with git's own words."""
    if (target / ".git").is_dir() and git(target, "rev-parse", "HEAD") == commit:
        return
    target.mkdir(parents=True, exist_ok=True)
    git(target, "init", "--quiet")
    git(target, "fetch", "--quiet", "--depth", "1", url, commit)
    git(target, "checkout", "--quiet", "--force", "FETCH_HEAD")


def git(directory: Path, *arguments: str) -> str:
    # A name and password that git would ask for have nobody to give them.
    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            [paths.tool("git"), *arguments], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"git {arguments[0]} did not end within {TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise BenchError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()
