"""What a guest boots from: the kernel without its decompressor, and an initramfs of busybox, modules and `init`."""

import hashlib
import lzma
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import Failed

INIT = Path(__file__).resolve().parent.parent / "init"
MODULES = """
    virtio_pci virtio_net virtio_console 9pnet_virtio 9p overlay
    dummy crc32_generic crc32c_generic ib_uverbs rdma_ucm rdma_rxe siw sch_netem
""".split()
# Looked up by name at run time, so a kernel that has them built in or in a library need not have them as modules.
MAY_BE_ABSENT = {"crc32_generic", "crc32c_generic"}
APPLETS = ("sh", "mount", "mkdir", "insmod", "switch_root", "poweroff")
PARAMETERS = {"dummy": "numdummies=2"}


def write_program(packed, target):
    """The program inside the bzImage, which QEMU starts by its PVH entry: emulated, unpacking it takes seconds.

    Where it is not found (packed otherwise, another architecture), the file as it is: that boots, too.
    """
    data = packed.read_bytes()
    for match in re.finditer(rb"\xfd7zXZ\x00", data):
        try:
            program = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(data[match.start():])
        except lzma.LZMAError:
            continue
        if program.startswith(b"\x7fELF"):
            target.write_bytes(program)
            return
    target.write_bytes(data)


def module_files(root, release):
    """Module files in the order in which they can be inserted."""
    files = []
    for module in MODULES:
        shown = subprocess.run(
            ["modprobe", "-d", root, "-S", release, "--show-depends", module],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        if shown.returncode != 0 and module not in MAY_BE_ABSENT:
            raise Failed(f"this kernel has no module {module}: {shown.stdout}")
        for word, *rest in map(str.split, shown.stdout.splitlines()):
            if word == "insmod" and rest[0] not in files:
                files.append(rest[0])
    return [Path(file) for file in files]


def collect_modules(root, release, target):
    """The module files as plain ones, and the file `order`: a line for each with its parameters."""
    target.mkdir()
    order = []
    for file in module_files(root, release):
        name = file.name.split(".ko")[0]
        # Debian 13 compresses its modules, and busybox inserts only plain ones.
        if file.suffix == ".xz":
            (target / f"{name}.ko").write_bytes(lzma.decompress(file.read_bytes()))
        else:
            shutil.copy(file, target / f"{name}.ko")
        order.append(f"{name}.ko {PARAMETERS.get(name, '')}".strip())
    (target / "order").write_text("\n".join(order) + "\n")


def initramfs(directory):
    """The initramfs of these modules and of `init` as it is now; made when there is none."""
    digest = hashlib.sha256(INIT.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    target = directory / f"initramfs-{digest}"
    if target.exists():
        return target
    for old in directory.glob("initramfs-*"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=directory) as name:
        tree = Path(name) / "tree"
        for part in ("bin", "dev", "proc", "sys", "host", "over", "system"):
            (tree / part).mkdir(parents=True)
        shutil.copytree(directory / "modules", tree / "modules")
        shutil.copy(shutil.which("busybox"), tree / "bin/busybox")
        for applet in APPLETS:
            (tree / "bin" / applet).symlink_to("busybox")
        shutil.copy(INIT, tree / "init")
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        with (Path(name) / "packed").open("wb") as out:
            subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], input=names.encode(), stdout=out,
                           stderr=subprocess.DEVNULL, cwd=tree, check=True)
        (Path(name) / "packed").rename(target)
    return target
