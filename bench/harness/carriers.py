"""The carriers that are compared: what `erl` needs for each, and whether it is there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from . import certificates, fetched, paths
from .errors import BenchError


PORT, PROCESS, RDMA, TCP_PATH = "port", "process", "rdma", "tcp path"
# What erlang:port_info(Port, name) says of inet_tcp's links.
OTP_DRIVER = "tcp_inet"


@dataclass(frozen=True)
class Carrier:
    name: str
    flags: tuple[str, ...]
    # What each node must show of its links: proof that the right carrier was measured. PORT: a port of the VM that
    # inet_rdma does not list. PROCESS: the same with a process. RDMA: listed by inet_rdma with a fabric other than TCP,
    # over a port or, in older builds, over a process. TCP_PATH: listed with TCP, over a port, not of OTP's driver.
    link: str = PROCESS
    # Between containers: whether in one or in two.
    network: str | None = None

    @property
    def is_rdma(self) -> bool:
        return "inet_rdma" in self.flags

    def objection(self, link: dict[str, str]) -> str | None:
        """Why a link, as a node reports it (controller, driver, fabric), is not of this carrier; None if it is."""
        controller, driver, fabric = link["controller"], link["driver"], link["fabric"]
        if self.link == RDMA:
            if fabric == "none":
                return f"inet_rdma:info() does not list the link; its controller is a {controller}"
            return "inet_rdma has left the link on TCP" if fabric == "tcp" else None
        if self.link == TCP_PATH:
            if fabric != "tcp":
                return f"inet_rdma:info() lists the link with the fabric {fabric}, not tcp"
            return "inet_rdma has left the link to OTP's driver" if driver == OTP_DRIVER else None
        if fabric != "none":
            return f"inet_rdma carries the link over {fabric}"
        return None if controller == self.link else f"the controller of the link is a {controller}, not a {self.link}"

    def on(self, network: str) -> Carrier:
        return replace(self, name=f"{self.name} {network}", network=network)


class Missing(BenchError):
    """This carrier cannot run here; the message says why."""


def inet_tcp() -> Carrier:
    return Carrier("inet_tcp", ("-proto_dist", "inet_tcp"), link=PORT)


def inet_rdma(extra: list[str], name: str = "inet_rdma") -> Carrier:
    """With the flags of `make -s erl-flags`, unless `extra` names a build of its own by -pa.

    Flags that ask for TCP alone make it a carrier whose links must stay there.
    """
    flags = ["-proto_dist", "inet_rdma", *extra]
    if "-pa" not in extra:
        flags = ["-pa", str(paths.local_build() / "ebin"), *flags]
    return Carrier(name, tuple(flags), link=TCP_PATH if asks_for_tcp(extra) else RDMA)


def asks_for_tcp(flags: list[str]) -> bool:
    width = len(TCP_ALONE)
    return any(tuple(flags[at:at + width]) == TCP_ALONE for at in range(len(flags)))


def tcp_path(extra: list[str]) -> Carrier:
    """inet_rdma over TCP alone: what its links cost where there is no other way."""
    return inet_rdma([*extra, *TCP_ALONE], "tcp path")


def tls_path(extra: list[str]) -> Carrier:
    """The same with the certificates of inet_tls: records over TCP."""
    options = ["-inet_rdma", "security", "tls", *TCP_ALONE]
    return inet_rdma([*extra, "-ssl_dist_optfile", str(certificates.optfile()), *options], "tls path")


def baseline(chosen: list[Carrier]) -> str:
    """What ratios are to: the VM's own, or else the first."""
    return next((carrier.name for carrier in chosen if "inet_tcp" in carrier.flags), chosen[0].name)


def gen_tcp() -> Carrier:
    """OTP's example of a carrier made of processes, compiled from the kernel application's examples."""
    source = Path(paths.ask_erl("code:lib_dir(kernel)")) / "examples" / "gen_tcp_dist" / "src" / "gen_tcp_dist.erl"
    if not source.exists():
        raise Missing("OTP's example carrier is not installed (on Debian: apt install erlang-examples)")
    target = paths.OUT / "gen_tcp"
    paths.compile_erlang([source], target)
    return Carrier("gen_tcp", ("-pa", str(target), "-proto_dist", "gen_tcp"))


# gen_rpc 3.6.0, with the release of its one dependency that it names.
GEN_RPC = {
    "gen_rpc": ("https://github.com/emqx/gen_rpc", "cd2a01ec5d23782979f5e505bc7d416127062d9f"),
    "snabbkaffe": ("https://github.com/kafka4beam/snabbkaffe", "b59298334ed349556f63405d1353184c63c66534"),
}


def gen_rpc(
    origins: dict[str, tuple[str, str]] = GEN_RPC, target: Path = paths.OUT / "gen_rpc",
) -> Carrier:
    """Bulk by gen_rpc, over TCP connections of its own, beside inet_tcp, which carries the rest.

    Its nodes listen on one port, so that each needs a network of its own.
    """
    try:
        for name, (url, commit) in origins.items():
            fetched.fetch(url, commit, target / name)
    except BenchError as error:
        raise Missing(str(error)) from error
    own, ebin = target / "gen_rpc", target / "ebin"
    paths.compile_erlang(sorted(own.glob("src/**/*.erl")), ebin, "-I", str(own / "include"), "-I", str(target))
    application = (own / "src" / "gen_rpc.app.src").read_text(encoding="utf-8")
    # Where rebar3 puts the version.
    (ebin / "gen_rpc.app").write_text(application.replace("{vsn, git}", '{vsn, "git"}'), encoding="utf-8")
    return Carrier("gen_rpc", ("-pa", str(ebin), "-proto_dist", "inet_tcp", "-bench_bulk", "gen_rpc"), link=PORT)


def inet_tls() -> Carrier:
    """OTP's carrier over TLS; both sides verify each other."""
    return Carrier("inet_tls", ("-proto_dist", "inet_tls", "-ssl_dist_optfile", str(certificates.optfile())))


def inet_ktls() -> Carrier:
    """The same with the kernel's TLS, which takes the link from the process to a port. OTP has it from 26 on."""
    if "tls" not in Path("/proc/sys/net/ipv4/tcp_available_ulp").read_text(encoding="ascii").split():
        raise Missing("the kernel has no TLS of its own (tcp_available_ulp does not list tls: modprobe tls)")
    if int(paths.otp_release()) < 26:
        raise Missing(f"OTP {paths.otp_release()} cannot use the kernel's TLS, OTP 26 can")
    optfile = certificates.optfile(ktls=True)
    return Carrier("inet_ktls", ("-proto_dist", "inet_tls", "-ssl_dist_optfile", str(optfile)), link=PORT)


def inet_rdma_tls(extra: list[str]) -> Carrier:
    """inet_rdma with the certificates of inet_tls, encrypted over shared memory, too."""
    options = ["-inet_rdma", "security", "tls", "-inet_rdma", "encrypt_shm", "true"]
    return inet_rdma([*extra, "-ssl_dist_optfile", str(certificates.optfile()), *options], "inet_rdma_tls")


TCP_ALONE = ("-inet_rdma", "fabric", "tcp")

# Carriers to compare with that may be missing.
OTHERS = {"gen_tcp": gen_tcp, "gen_rpc": gen_rpc, "inet_tls": inet_tls, "inet_ktls": inet_ktls}


def select(names: list[str], rdma_flags: list[str], variants: dict[str, list[str]]) -> tuple[list[Carrier], list[str]]:
    """The carriers in the order given, then the variants of inet_rdma; and why the others are left out.

    Only those of `OTHERS` may be left out: a missing carrier of our own, or a wrong name, is an error.
    """
    chosen: list[Carrier] = []
    skipped: list[str] = []
    for name in names:
        if name == "inet_tcp":
            chosen.append(inet_tcp())
        elif name == "tcp_path":
            chosen.append(tcp_path(rdma_flags))
        elif name == "tls_path":
            chosen.append(tls_path(rdma_flags))
        elif name == "inet_rdma":
            chosen.append(inet_rdma(rdma_flags))
        elif name == "inet_rdma_tls":
            chosen.append(inet_rdma_tls(rdma_flags))
        elif name in OTHERS:
            try:
                chosen.append(OTHERS[name]())
            except Missing as reason:
                skipped.append(f"{name} skipped: {reason}")
        else:
            known = ", ".join(["inet_tcp", "tcp_path", "tls_path", "inet_rdma", "inet_rdma_tls", *OTHERS])
            raise BenchError(f"unknown carrier {name!r}: known are {known}")
    chosen += [inet_rdma(rdma_flags + flags, name) for name, flags in variants.items()]
    taken = [carrier.name for carrier in chosen]
    if len(set(taken)) != len(taken):
        raise BenchError(f"a carrier is named twice: {', '.join(taken)}")
    return chosen, skipped
