#!/usr/bin/python3
"""Compares rdma-cat with nc and socat over TCP loopback, and with dd | cat, as pipes from the page cache to `wc -c`.

In each round all of them run, in an order that turns; ratios are within rounds. Prints a table and writes the figures.
A program that is not installed is left out. Build first: make rdma-cat.
"""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from harness.environment import commit, machine, memcpy_mb_s  # noqa: E402  (no byte code into the source tree)
from harness.stats import absolute, ratio  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
CAT = ROOT / "native" / "target" / "release" / "rdma-cat"
TIMEOUT_S = 120
BASELINE = "nc over TCP"

# Name -> (program needed, receiver or None, sender); the receiver's output goes to `wc -c`.
PIPES = {
    "rdma-cat": (None, "{cat} recv -q 127.0.0.1:{port}", "{cat} send -q localhost:{port} < {file}"),
    "rdma-cat --no-verify": (
        None, "{cat} recv -q 127.0.0.1:{port}", "{cat} send -q --no-verify localhost:{port} < {file}"),
    "rdma-cat --fabric tcp": (
        None, "{cat} recv -q --fabric tcp 127.0.0.1:{port}", "{cat} send -q --fabric tcp 127.0.0.1:{port} < {file}"),
    "rdma-cat --fabric tcp --no-verify": (
        None, "{cat} recv -q --fabric tcp 127.0.0.1:{port}",
        "{cat} send -q --no-verify --fabric tcp 127.0.0.1:{port} < {file}"),
    BASELINE: ("nc", "nc -l -N 127.0.0.1 {port}", "nc -N 127.0.0.1 {port} < {file}"),
    "socat over TCP": (
        "socat", "socat -u -b 262144 TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr -",
        "socat -u -b 262144 - TCP:127.0.0.1:{port} < {file}"),
    "dd | cat (no transport)": ("dd", None, "dd if={file} bs=256K status=none | cat"),
}


def is_listening(port, name):
    """Whether the receiver has bound its port: an address of a Unix socket, or of a TCP one, tried by no connection."""
    if name.startswith("rdma-cat") and "tcp" not in name:
        return any("inet_rdma" in line and str(port) in line for line in open("/proc/net/unix", encoding="ascii"))
    wanted = f":{port:04X}"
    lines = open("/proc/net/tcp", encoding="ascii").read().splitlines()[1:]
    return any(line.split()[1].endswith(wanted) and line.split()[3] == "0A" for line in lines)


def run(name, receiver, sender, file, port, cat):
    """Seconds of one transfer, until `wc` has counted the last byte."""
    words = {"cat": shlex.quote(str(cat)), "port": port, "file": shlex.quote(str(file))}
    shell = ["bash", "-o", "pipefail", "-c"]
    if receiver is None:
        started = time.perf_counter()
        done = subprocess.run([*shell, sender.format(**words) + " | wc -c"], capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=True)
        counted = done.stdout
    else:
        receiving = subprocess.Popen([*shell, receiver.format(**words) + " | wc -c"], stdout=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 10
            while not is_listening(port, name):
                if time.monotonic() > deadline or receiving.poll() is not None:
                    sys.exit(f"cat.py: {name} does not listen on port {port}")
                time.sleep(0.01)
            started = time.perf_counter()
            subprocess.run([*shell, sender.format(**words)], timeout=TIMEOUT_S, check=True)
            counted = receiving.communicate(timeout=TIMEOUT_S)[0]
            if receiving.returncode != 0:
                sys.exit(f"cat.py: the receiver of {name} failed")
        finally:
            if receiving.poll() is None:
                receiving.kill()
    seconds = time.perf_counter() - started
    if int(counted) != os.stat(file).st_size:
        sys.exit(f"cat.py: {name} lost bytes: {counted.strip()} arrived")
    return seconds


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default %(default)s)")
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the file (default %(default)s)")
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("/dev/shm"),
                        help="where the file is made (default %(default)s)")
    parser.add_argument("--cat", type=pathlib.Path, default=CAT, help="the rdma-cat to measure")
    parser.add_argument("--variant", action="append", default=[], metavar="OPTIONS",
                        help="measure rdma-cat with these options at both ends, too; may be repeated")
    parser.add_argument("--out", type=pathlib.Path, help="directory for results.json and table.txt")
    options = parser.parse_args()
    if not options.cat.exists():
        sys.exit("cat.py: rdma-cat is not built: run make rdma-cat")
    pipes = {name: pipe for name, pipe in PIPES.items() if pipe[0] is None or shutil.which(pipe[0])}
    for left_out in PIPES.keys() - pipes.keys():
        print(f"cat.py: {left_out} is left out, {PIPES[left_out][0]} is not installed", file=sys.stderr)
    for variant in options.variant:
        pipes[f"rdma-cat {variant}"] = (
            None, f"{{cat}} recv -q {variant} 127.0.0.1:{{port}}",
            f"{{cat}} send -q {variant} localhost:{{port}} < {{file}}")
    file = options.directory / f"rdma-cat-bench-{os.getpid()}"
    rounds = []
    try:
        block = os.urandom(1_000_000)
        with open(file, "wb") as target:
            for _ in range(options.megabytes):
                target.write(block)
        names = list(pipes)
        for index in range(options.rounds):
            turn = names[index % len(names):] + names[:index % len(names)]
            values = {}
            for name in turn:
                _needed, receiver, sender = pipes[name]
                seconds = run(name, receiver, sender, file, free_port(), options.cat)
                values[name] = {"mb_s": options.megabytes / seconds}
            rounds.append(values)
            print(f"round {index + 1}: " + ", ".join(f"{name} {values[name]['mb_s']:.0f}" for name in names),
                  file=sys.stderr)
    finally:
        file.unlink(missing_ok=True)
    baseline = BASELINE if BASELINE in pipes else "dd | cat (no transport)"
    memcpy = {"1 MB": memcpy_mb_s(1 << 20), "16 MB": memcpy_mb_s(16 << 20)}
    lines, figures = table(rounds, list(pipes), baseline, memcpy)
    print("\n".join(lines))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        results = {"schema": 1, "commit": commit(), "machine": machine(), "memcpy_mb_s": memcpy,
                   "megabytes": options.megabytes, "baseline": baseline, "pipes": figures, "rounds": rounds}
        (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (options.out / "table.txt").write_text("\n".join(lines) + "\n")


def table(rounds, names, baseline, memcpy):
    """Lines of the table, and the same as figures."""
    lines = [f"{'pipe':36} {'MB/s':>6}  {'min .. max':>14}  {'ratio':>6}  {'min .. max':>12}"]
    figures = {}
    for name in names:
        rate, relative = absolute(rounds, name, "mb_s"), ratio(rounds, name, baseline, "mb_s")
        lines.append(f"{name:36} {rate.median:6.0f}  {f'{rate.low:.0f} .. {rate.high:.0f}':>14}  "
                     f"{relative.median:6.2f}  {f'{relative.low:.2f} .. {relative.high:.2f}':>12}")
        figures[name] = {"mb_s": rate.as_dict(), "ratio": relative.as_dict()}
    lines.append(f"memcpy, one thread: {memcpy['1 MB']} MB/s (1 MB), {memcpy['16 MB']} MB/s (16 MB); "
                 f"{len(rounds)} rounds, ratios to {baseline} within rounds")
    return lines, figures


if __name__ == "__main__":
    main()
