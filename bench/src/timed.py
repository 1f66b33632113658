"""timed.py LOG COMMAND...: runs a command to its end and prints a line of JSON with what it has used.

`status`: exit status; `wall_s`; `cpu_s`: user and system time of the process and of the children that it has waited
for; `peak_kb`: the most memory (RSS) that one of them had. It is a process of its own, as Linux counts the memory
that a process has before exec, too, which is that of its parent: the harness may have more than the command.
"""

import json
import os
import sys
import time

log, command = sys.argv[1], sys.argv[2:]
files = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    (os.POSIX_SPAWN_DUP2, 1, 2),
]
began = time.monotonic()
pid = os.posix_spawn(command[0], command, os.environ, file_actions=files)
_, status, used = os.wait4(pid, 0)
print(json.dumps({
    "status": os.waitstatus_to_exitcode(status), "wall_s": time.monotonic() - began,
    "cpu_s": used.ru_utime + used.ru_stime, "peak_kb": used.ru_maxrss,
}))
