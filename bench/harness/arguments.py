"""What the words of the command line may be."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable

from .network import JUMBO_MTU


def words(text: str) -> list[str]:
    return text.split(",")


def choices(known: list[str]) -> Callable[[str], list[str]]:
    def chosen(text: str) -> list[str]:
        for word in text.split(","):
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(known)}")
        return text.split(",")

    return chosen


def whole_numbers(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def numbers(own: argparse.ArgumentParser, flag: str, default: str, what: str) -> None:
    own.add_argument(flag, type=whole_numbers, default=default,
                     help=f"{what}; comma-separated")


def sizes(own: argparse.ArgumentParser, default: str, what: str) -> None:
    own.add_argument("--size", type=whole_sizes, default=default,
                     help=f"{what}; K and M are 1024 and 1024 * 1024; comma-separated")


def whole_sizes(text: str) -> list[int]:
    return [size(part) for part in text.split(",")]


def size(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    value = int(text[:-1] if factor > 1 else text) * factor
    if value < 0:
        raise argparse.ArgumentTypeError("a size cannot be negative")
    return value


def count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return int(text)


def positive(text: str) -> float:
    if not float(text) > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return float(text)


def not_negative(text: str) -> float:
    if not float(text) >= 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return float(text)


def mtu(text: str) -> int:
    """At least what every host of IPv4 takes, at most what the wire does."""
    if not 576 <= int(text) <= JUMBO_MTU:
        raise argparse.ArgumentTypeError(f"must be 576 to {JUMBO_MTU}")
    return int(text)


def positives(text: str) -> list[float]:
    return [positive(part) for part in text.split(",")]


def percents(text: str) -> list[float]:
    return [not_negative(part) for part in text.split(",")]


def buffers(text: str) -> list[int | None]:
    """Maxima of socket buffers, in bytes; None: the kernel's own."""
    return [None if part == "default" else count(str(size(part))) for part in text.split(",")]


def variant(text: str) -> tuple[str, list[str]]:
    name, found, flags = text.partition("=")
    if not found or not name.isidentifier():
        raise argparse.ArgumentTypeError("expected NAME=FLAGS, as in busy='-inet_rdma polling busy'")
    return name, shlex.split(flags)
