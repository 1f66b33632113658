"""One run of a suite over a carrier, by ct_run in namespaces of its own, and what became of its cases."""

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass

from sources import Unavailable

# The time limit of a suite. The slowest, global_SUITE, takes 11 minutes on two processors with a load of 25.
LIMIT_S = 2400
# The factor for the cases' own limits, which are made for an idle machine.
MULTIPLY_TIMETRAPS = 3

# The nodes have a network of their own: cases stop EPMD, start a second one, and give their nodes fixed names. All
# processes, also nodes that a case has left, end with the namespace of process ids, and that with this program.
# In a chroot, where / is no mount, its propagation cannot be changed; that of /proc is private in any case.
NAMESPACES = ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--kill-child",
              "--propagation", "unchanged", "--mount-proc")
# The machine's name may stand for an address of another interface than lo.
IN_NAMESPACES = """
ip link set lo up
for address in $(getent ahostsv4 "$(hostname)" | awk '{print $1}' | sort -u); do
    ip address add "$address/32" dev lo 2>/dev/null || true
done
epmd -daemon
"$@"
"""


def check_machine(root):
    missing = [tool for tool in ("setpriv", "unshare", "ip", "getent", "epmd", "ct_run") if not shutil.which(tool)]
    # distribution_SUITE starts it.
    missing += [] if list((root / "lib").glob("os_mon-*")) else ["the application os_mon"]
    if missing:
        raise Unavailable(f"missing: {', '.join(missing)}; `scripts/deps ci` installs them")
    made = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True)
    if made.returncode:
        raise Unavailable(f"no namespaces for the network and for process ids, which take root: {made.stderr.strip()}")


@dataclass(frozen=True)
class Carrier:
    """A value of -proto_dist, with the flags that each node gets."""

    name: str
    flags: str
    driver: str  # of a link between two of its nodes


# The result of a case that has none.
LOST = "lost with the test node"


def is_pass(result):
    return result.startswith("ok")


def is_failure(result):
    """Also of a case that is skipped because its preparation has failed."""
    return result == LOST or result.startswith(("failed", "auto_skipped"))


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    results: dict[str, str]  # of each case SUITE:CASE, as Common Test says it: ok, skipped: ..., failed: ...
    closing: str | None  # Common Test's closing line, or None if it did not come to its end
    status: int | str  # of the test node
    seconds: int
    links: dict[str, int]  # of the test node, by driver

    def names(self, kind=lambda result: True):
        """The names of the cases, without the suite's, with a result of this kind."""
        return {case.split(":")[1] for case, result in self.results.items() if kind(result)}

    def is_good(self):
        return self.closing is not None and not self.names(is_failure)

    def end(self):
        return self.closing or f"no end of the run, status {self.status}"


def run(suite, carrier, built, folder, without):
    """Runs the suite, `without` some of its cases."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)
    (folder / "home").mkdir()
    source = (built / suite.folder / f"{suite.name}.erl").read_text(encoding="utf-8")
    (folder / "spec").write_text("\n".join(spec(suite, source, built, folder, without)), encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("ERL_LIBS", "MIX_ENV")},
        "HOME": str(folder / "home"), "ERL_AFLAGS": carrier.flags, "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
    }
    command = [*NAMESPACES, "sh", "-euc", IN_NAMESPACES, "suites", "ct_run", "-noinput", "-sname", "ct",
               "-pa", built / "hooks", built / suite.folder, "-no_auto_compile", "-logdir", folder / "logs",
               "-spec", folder / "spec"]
    started = time.monotonic()
    with (folder / "output").open("wb") as output:
        try:
            status = subprocess.run(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=output, timeout=LIMIT_S).returncode
        except subprocess.TimeoutExpired:
            status = f"none after {LIMIT_S} s"
    return outcome(folder, status, time.monotonic() - started)


# The reason of a case that a run is without.
NOT_NOW = "not in this run"


def spec(suite, source, built, folder, without):
    """Common Test's specification of the run, line by line. A case that this OTP's suite does not have is no part."""
    def there(names):
        return ", ".join(name for name in names if re.search(rf"^{name}\(", source, re.M))

    directory = f'"{built / suite.folder}"'
    if suite.only:
        yield f"{{cases, {directory}, {suite.name}, [{there(set(suite.only) - without)}]}}."
    else:
        yield f"{{suites, {directory}, [{suite.name}]}}."
        for reason, names in {**suite.left_out, NOT_NOW: without}.items():
            yield f'{{skip_cases, {directory}, {suite.name}, [{there(names)}], "{reason}"}}.'
    yield f'{{ct_hooks, [{{inet_rdma_otp_links, ["{folder / "links"}"]}}]}}.'
    if suite.nodenames:
        yield f"{{ct_hooks, [{{ts_install_cth, [{{nodenames, {suite.nodenames}}}]}}]}}."
    yield f"{{multiply_timetraps, {MULTIPLY_TIMETRAPS}}}."


CLOSING = re.compile(r"TEST COMPLETE, (.* of \d+ test cases)$", re.M)
CONFIGURATION = re.compile(r"(init|end)_per_(suite|group)$")


def outcome(folder, status, seconds):
    closing = CLOSING.findall((folder / "output").read_text(errors="replace"))
    return Outcome(
        results=results(path.read_text(errors="replace") for path in folder.glob("logs/ct_run.*/**/suite.log")),
        closing=closing[-1] if closing else None,
        status=status,
        seconds=round(seconds),
        links=links(folder / "links"),
    )


def results(logs):
    """The cases in the files suite.log. One that several groups have is as bad as the worst of them."""
    found = {}
    for log in logs:
        for block in log.split("\n=case ")[1:]:
            case = block.split("\n", 1)[0].strip()
            result = re.search(r"^=result +(.*(?:\n(?!=).*)*)", block, re.M)
            if not CONFIGURATION.search(case) and not is_failure(found.get(case, "ok")):
                found[case] = " ".join(result[1].split()) if result else LOST
    return {case: result for case, result in found.items() if result != f"skipped: {NOT_NOW}"}


def links(file):
    """From the lines that inet_rdma_otp_links writes."""
    pairs = (line.rsplit(" ", 1) for line in file.read_text().splitlines()) if file.exists() else ()
    return {driver: int(count) for driver, count in pairs}
