"""Programs for arm64 on this host: qemu-user runs them, with the libraries of Debian's packages for arm64."""

import shutil
import subprocess
from shlex import quote

import tree
from sources import Unavailable, apt_get

QEMU = "qemu-aarch64-static"


def check_qemu():
    if not shutil.which(QEMU):
        raise Unavailable(f"there is no {QEMU} (Debian: qemu-user-static)")


def unpack(work, root, packages, alone=()):
    """Unpacks into `root` the packages, with all that they need on a machine for arm64 that has none, and `alone`
    without what these depend on. They are of the release and the mirrors of this host's apt sources."""
    apt = [*apt_get(work, "deb"), "-y", "-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64",
           f"-oDir::State::status={work}/status"]
    (work / "status").touch()
    archives = work / "cache/archives"
    root.mkdir(parents=True)
    run(*apt, "update")
    run(*apt, "--no-install-recommends", "--download-only", "install", *packages)
    if alone:
        run(*apt, "download", *alone, cwd=archives)
    for file in archives.glob("*.deb"):
        run("dpkg-deb", "-x", file, root)


def wrap(otp, final, root, flags=()):
    """Gives each program of the folder of an OTP, which moves to `final`, the name NAME.arm64, and a script its name:
    this host's kernel might not know programs of other machines. `root` has the libraries. The VM gets the flags."""
    _, programs = tree.programs(otp)
    for program in programs:
        if not program.is_symlink():
            real = final / program.rename(program.with_name(f"{program.name}.arm64")).relative_to(otp)
            command = [QEMU, "-L", quote(str(root)), quote(str(real)), *(flags if program.name == "beam.smp" else ())]
            tree.write_script(program, f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')


def run(*command, cwd=None):
    if not shutil.which(command[0]):
        raise Unavailable(f"there is no {command[0]}: the packages come from Debian")
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]} has failed: {done.stdout[-500:].strip()}")
