#!/usr/bin/python3
"""Benchmark of inet_rdma against other distribution carriers. See bench/README.md, or run with --help."""

import sys

sys.dont_write_bytecode = True

from harness.cli import main  # noqa: E402  (no byte code may be written into the source tree before this import)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
