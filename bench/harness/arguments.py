"""What the words of the command line may be."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable


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


def network(text: str) -> tuple[str, list[str]]:
    name, found, addresses = text.partition("=")
    if not found or not name.isidentifier() or not all(addresses.split(",")):
        raise argparse.ArgumentTypeError("expected NAME=ADDRESS,ADDRESS,... or NAME=ENDING, as in ib=-ib")
    return name, addresses.split(",")


def port_range(text: str) -> list[str]:
    """As flags of erl."""
    if not text:
        return []
    low, _, high = text.partition("-")
    if not 0 < int(low) <= int(high or low) < 65536:
        raise argparse.ArgumentTypeError("expected MIN-MAX, as in 9100-9110")
    return ["-kernel", "inet_dist_listen_min", low, "inet_dist_listen_max", high or low]


def variant(text: str) -> tuple[str, list[str]]:
    name, found, flags = text.partition("=")
    if not found or not name.isidentifier():
        raise argparse.ArgumentTypeError("expected NAME=FLAGS, as in busy='-inet_rdma polling busy'")
    return name, shlex.split(flags)
