#!/usr/bin/python3
"""Counts the instructions of the native data path with Valgrind and compares them with the committed figures.

The same build gives the same figures on every run and under any load, unlike times: so CI can compare them. It fails
where a case takes over a tenth more instructions than its figure says. The cases are in benches/instructions.rs of
native/core/engine and native/link/envelope.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "bench" / "results" / "instructions.json"
TOLERANCE = 0.10

# Valgrind counts a string instruction ("rep movs") once per byte, and the C library picks its memcpy by processor:
# without these the figures of large packets would be those of the machine.
TUNABLES = "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM"

# Debian has no Valgrind for these.
WITHOUT_VALGRIND = ("riscv", "loongarch")


PACKAGES = ("inet_rdma_engine", "inet_rdma_envelope")


def build():
    """The benchmark programs."""
    command = ["cargo", "bench", "--no-run", "--bench", "instructions"]
    command += [word for package in PACKAGES for word in ("-p", package)]
    command += ["--message-format", "json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT / "native", stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    programs = [message["executable"] for message in messages if message.get("executable")]
    assert len(programs) == len(PACKAGES), programs
    return programs


def count(program, case):
    """All instructions of one case."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += ["--toggle-collect=instructions::measured*", program, case]
    environment = os.environ | {"GLIBC_TUNABLES": TUNABLES}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not collected or collected[1] == "0":
        sys.exit(f"{done.stderr}\ninstructions: valgrind counted nothing for {case!r}, status {done.returncode}")
    return int(collected[1])


def measure(programs):
    """Instructions per operation, by case."""
    cases = []
    for program in programs:
        listed = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
        cases += [(program, *line.split("\t")) for line in listed.splitlines()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        totals = list(pool.map(lambda case: count(case[0], case[2]), cases))
    return {name: round(total / int(operations), 1) for (_, operations, name), total in zip(cases, totals, strict=True)}


def compare(committed, found):
    """Lines of the table, and whether all is well."""
    lines = [f"{'instructions':34} {'committed':>10} {'now':>10}"]
    well = True
    for name in committed | found:
        old, new = committed.get(name), found.get(name)
        if old is None or new is None:
            change, well = "NO FIGURE" if old is None else "NO SUCH CASE", False
        else:
            change = f"{new / old - 1:+.1%}"
            if new > old * (1 + TOLERANCE):
                change, well = f"{change}  WORSE", False
            elif new < old * (1 - TOLERANCE):
                change = f"{change}  better: commit it with make bench-instructions ARGS=--update"
        lines.append(f"{name:34} {old or '-':>10} {new or '-':>10}  {change}")
    return lines, well


def is_comparable(committed, rustc, libc):
    """Whether this compiler and this C library make figures like the committed ones, or better."""
    version = [int(number) for number in re.findall(r"\d+", rustc)[:2]]
    return libc == committed["libc"] and version >= [int(number) for number in committed["rustc"].split(".")[:2]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write what is counted into the committed figures")
    update = parser.parse_args().update
    machine = platform.machine()
    if not shutil.which("valgrind"):
        if machine.startswith(WITHOUT_VALGRIND):
            print(f"instructions: SKIPPED, there is no valgrind for {machine}")
            return 0
        print("instructions: valgrind is not in PATH; install it with: scripts/deps", file=sys.stderr)
        return 69
    figures = json.loads(FIGURES.read_text())
    found = measure(build())
    rustc = subprocess.check_output(["rustc", "--version"], text=True, cwd=ROOT / "native").split()[1]
    libc = platform.libc_ver()[1]
    if update:
        figures[machine] = {"rustc": rustc, "libc": libc, "instructions": found}
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n")
    if machine not in figures:
        print(*(f"{name:34} {value:>10}" for name, value in found.items()), sep="\n")
        print(f"instructions: not compared, there are no figures of {machine}; make bench-instructions ARGS=--update")
        return 0
    committed = figures[machine]
    lines, well = compare(committed["instructions"], found)
    print(*lines, sep="\n")
    if not is_comparable(committed, rustc, libc):
        print(f"instructions: not judged, these are of rustc {rustc}, glibc {libc},", end=" ")
        print(f"the committed ones of rustc {committed['rustc']}, glibc {committed['libc']}")
        return 0
    print(f"instructions: {'as committed' if well else 'NOT as committed'} within {TOLERANCE:.0%}", end=" ")
    print(f"(by rustc {committed['rustc']}, glibc {committed['libc']})")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
