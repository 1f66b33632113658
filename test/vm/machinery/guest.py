"""One guest: its qemu process, the port through which it talks, its console log."""

import os
import re
import socket
import subprocess

from . import tsc
from .errors import Failed

MEMORY_MIB = 3072
# A second processor costs half as much of the host's time again: emulated processors wait for each other.
PROCESSORS = 1
# What the kernel writes when something in it is broken. A panic also ends qemu: oops=panic panic=-1, -no-reboot.
BROKEN = re.compile(r"^.*(Kernel panic|Oops:|BUG: |general protection fault|UBSAN: |refcount_t: ).*$", re.MULTILINE)
PARAMETERS = (
    "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on tsc=reliable "
    "no_timer_check nowatchdog net.ifnames=0 "
)
# By their names in eth0, eth1, eth2: rxe's data, siw's data, management.
NETWORKS = 3


class Guest:
    def __init__(self, number, guests, processors, job, results):
        self.number = number
        self.name = f"guest{number}"
        self.console = job / f"{self.name}.console"
        self.port, self._far_port = socket.socketpair()
        self._guests = guests
        self._processors = processors
        self._job = job
        self._results = results
        self._process = None

    def start(self, kernel, program, cables):
        """`cables`: one connected socket per network, none for a guest alone. They belong to qemu from now on."""
        command = [
            # Ends with us, however we end.
            "setpriv", "--pdeathsig", "KILL",
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(self._processors),
            "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", kernel.program, "-initrd", kernel.initramfs(),
            "-append", f"{PARAMETERS} tsc_early_khz={tsc.kilohertz()} vm_number={self.number} "
                       f"vm_guests={self._guests} vm_job={self._job} vm_guest_program={program}",
            "-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console",
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=port,fd={self._far_port.fileno()}", "-device", "virtserialport,chardev=port,nr=1",
            "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            "-virtfs", f"local,path={self._results},mount_tag=results,security_model=none,multidevs=remap",
        ]
        for network, cable in enumerate(cables):
            mac = f"52:54:00:09:{network:02x}:{self.number:02x}"
            command += [
                "-netdev", f"stream,id=net{network},server=off,addr.type=fd,addr.str={cable.fileno()}",
                "-device", f"virtio-net-pci,netdev=net{network},mac={mac},romfile=",
            ]
        handed_over = [self._far_port, *cables]
        log = self._job / f"{self.name}.qemu"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                pass_fds=[end.fileno() for end in handed_over],
                # Away from the terminal's Ctrl-C: we end it in our own time.
                start_new_session=True,
            )
        for end in handed_over:
            end.close()

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def stop(self):
        if self.is_running():
            self._process.kill()
        if self._process is not None:
            self._process.wait()

    def log(self):
        text = ""
        for suffix in ("qemu", "console"):
            path = self._job / f"{self.name}.{suffix}"
            if path.exists():
                text += path.read_text(errors="replace")
        return text.replace("\r\n", "\n")

    def tail(self, lines=40):
        shown = "\n".join("    " + line for line in self.log().splitlines()[-lines:])
        return f"the last lines of {os.path.relpath(self.console)}:\n{shown}"

    def check_kernel(self):
        if not self.console.exists():
            raise Failed(f"{self.console} was removed during the run, so nobody knows how {self.name}'s kernel did")
        broken = BROKEN.search(self.log())
        if broken:
            raise Failed(f"{self.name}: its kernel failed: {broken.group().strip()}\n{self.tail(80)}")
