"""Runs a program in which a system call fails with EPERM: without_call.py CALL PROGRAM [ARGUMENT...]

A seccomp filter, which the program inherits. Exit status 77: this machine has no such filters.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NUMBERS = {
    "memfd_create": {"x86_64": 319, "aarch64": 279, "riscv64": 279, "ppc64le": 360, "s390x": 350},
    "eventfd2": {"x86_64": 290, "aarch64": 19, "riscv64": 19, "ppc64le": 314, "s390x": 323},
}


def deny(number: int) -> bool:
    instructions = [
        (LOAD_NUMBER, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, number),
        (RETURN, 0, 0, FAIL | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in instructions))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    return (
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        and prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0) == 0
    )


number = NUMBERS[sys.argv[1]].get(platform.machine())
if number is None or not deny(number):
    sys.exit(77)
os.execv(sys.argv[2], sys.argv[2:])
