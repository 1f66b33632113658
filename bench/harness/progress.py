"""What a measurement of several rounds says of its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator


def say(line: str) -> None:
    """Progress goes to stderr: stdout holds the table alone."""
    print(line, file=sys.stderr, flush=True)


def each_round(rounds: int) -> Iterator[int]:
    """The numbers of the rounds from 0 on. After each round but the last one it says how long the others will take."""
    began = time.monotonic()
    for number in range(rounds):
        yield number
        done, left = number + 1, rounds - number - 1
        if left:
            passed = time.monotonic() - began
            say(f"round {done}/{rounds} done after {duration(passed)}, about {duration(passed / done * left)} left")


def duration(seconds: float) -> str:
    """In words, rounded."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
