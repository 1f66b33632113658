"""The guests' kernel and modules: Debian's, as packages that are unpacked and not installed, and siw built for it."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import boot_image
from .errors import Failed

# Debian's kernel has rxe but not siw (CONFIG_RDMA_SIW is off), so siw is built out of tree.
SIW = "drivers/infiniband/sw/siw"
# The kernel's siw may give an object the key 0x90000, which means "no key" to its library (SIW_INVAL_UOBJ_KEY): from
# then on no completion queue or queue pair can be made in that process. Keys above it are all good.
SIW_KEY = ("rdma_user_mmap_entry_insert(&uctx->base_ucontext,",
           "rdma_user_mmap_entry_insert_range(&uctx->base_ucontext,")
SIW_KEY_RANGE = ("length);", "length, 0x91, U32_MAX);")
# Other packages (initramfs-tools, firmware, compilers) come with a kernel only to install it.
OURS = re.compile(r"linux-(image|binary|modules|headers|kbuild)-")


def run(*command, **options):
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    if result.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stdout[-3000:]}")
    return result.stdout


def fields(package):
    """The control fields of the version that apt would install."""
    text = run("apt-cache", "show", "--no-all-versions", package)
    return dict(line.split(": ", 1) for line in text.splitlines() if re.match(r"[A-Z][\w-]*: ", line))


def dependencies(package):
    """Names of the packages of ours that this one depends on directly."""
    names = [re.split(r"[ (:|]", item.strip())[0] for item in fields(package).get("Depends", "").split(",")]
    return [name for name in names if OURS.match(name)]


def closure(*roots):
    """The packages and all of ours below them, each once."""
    found, todo = [], list(roots)
    while todo:
        package = todo.pop(0)
        if package not in found:
            found.append(package)
            todo += dependencies(package)
    return found


def avoid_the_bad_key(source):
    """Leaves a siw that does it another way as it is."""
    text = source.read_text()
    before, call, after = text.partition(SIW_KEY[0])
    if call:
        source.write_text(before + SIW_KEY[1] + after.replace(*SIW_KEY_RANGE, 1))


class Kernel:
    """Which kernel apt has for this architecture, and where its files are or will be."""

    def __init__(self, arch, cache):
        image = next(name for name in dependencies(f"linux-image-{arch}") if name.startswith("linux-image-"))
        self.image = image
        self.release = image.removeprefix("linux-image-")
        self.version = fields(image)["Version"]
        self.directory = cache / f"linux-{self.release}_{self.version}"
        self.program = self.directory / "program"

    def initramfs(self):
        return boot_image.initramfs(self.directory)

    def is_ready(self):
        return self.directory.is_dir()

    def prepare(self, say):
        """Downloads, unpacks, builds; what is there afterwards is complete."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="prepare.", dir=self.directory.parent) as name:
            work = Path(name)
            done = work / "done"
            done.mkdir()
            say(f"downloading Linux {self.release} {self.version}")
            packages = self._download(work)
            for package in packages:
                if not package.name.startswith("linux-source-"):
                    run("dpkg-deb", "-x", package, work / "unpacked")
            root = work / "unpacked"
            # Debian 13's modules are in usr/lib. depmod and modprobe know it as lib.
            if not (root / "lib").exists():
                (root / "lib").symlink_to("usr/lib")
            say("building the siw module")
            self._build_siw(work, next(package for package in packages if package.name.startswith("linux-source-")))
            run("depmod", "-b", root, self.release)
            boot_image.write_program(root / "boot" / f"vmlinuz-{self.release}", done / "program")
            boot_image.collect_modules(root, self.release, done / "modules")
            done.rename(self.directory)
        self._forget_older()

    def _download(self, work):
        series = re.match(r"\d+\.\d+", self.release).group()
        names = closure(self.image, f"linux-headers-{self.release}")
        wanted = [f"{name}={fields(name)['Version']}" for name in names] + [f"linux-source-{series}={self.version}"]
        run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *wanted, cwd=work)
        return sorted(work.glob("*.deb"))

    def _build_siw(self, work, source):
        unpack = (
            'dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "./usr/src/linux-source-*.tar.xz" | '
            f'xz -dT0 | tar -x --strip-components=1 --wildcards "*/{SIW}"'
        )
        run("bash", "-o", "pipefail", "-c", unpack, "unpack", source.resolve(), cwd=work)
        headers = work / "unpacked" / "usr/src" / f"linux-headers-{self.release}"
        # The headers' Makefile includes the common one by its place in an installed system.
        makefile = headers / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{headers.parent}/"))
        module = work / SIW
        avoid_the_bad_key(module / "siw_verbs.c")
        # Debian 13's kernel wants type information for debuggers (BTF) in modules, and pahole to make it.
        settings = ("CC=gcc", "CONFIG_RDMA_SIW=m", "CONFIG_DEBUG_INFO_BTF_MODULES=")
        run("make", "-C", headers, f"M={module}", *settings, f"-j{os.cpu_count()}", "modules")
        extra = work / "unpacked" / "lib/modules" / self.release / "extra"
        extra.mkdir()
        shutil.copy(module / "siw.ko", extra)

    def _forget_older(self):
        for other in self.directory.parent.glob("linux-*"):
            if other != self.directory and other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
