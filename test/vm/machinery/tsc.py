"""The rate of this machine's time stamp counter, which is also that of the guests.

Their kernel would find it out against an emulated timer, and on a busy host, where qemu waits for its turn meanwhile,
takes it for several times too small: the guest's clock, and all its limits of time, then run so much faster.
"""

import ctypes
import mmap
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")
MEASURED_S = 0.1
# With this number of readings, no interrupt hits at least one of them.
READINGS = 50


def kilohertz():
    """By the kernel's clock, to a few millionths."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(READ)
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    start_ns, start = reading(counter)
    time.sleep(MEASURED_S)
    end_ns, end = reading(counter)
    return round((end - start) * 1_000_000 / (end_ns - start_ns))


def reading(counter):
    """The time in nanoseconds, and the counter at that time."""
    def read():
        before_ns = time.monotonic_ns()
        ticks = counter()
        after_ns = time.monotonic_ns()
        return after_ns - before_ns, (before_ns + after_ns) // 2, ticks
    _, at_ns, ticks = min(read() for _ in range(READINGS))
    return at_ns, ticks
