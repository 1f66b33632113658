"""The folder of an OTP: its programs, and the scripts that start it."""

import os
import re


def is_program(file):
    return file.is_file() and os.access(file, os.X_OK) and file.read_bytes()[:4] == b"\x7fELF"


def programs(folder):
    """The folder of the VM's programs, and all programs of the OTP."""
    target, = folder.glob("erts-*/bin")
    return target, [file for file in [*target.iterdir(), *(folder / "bin").iterdir()] if is_program(file)]


def set_root(folder, root):
    """Lets the scripts that start the OTP know that it is in `root`."""
    target, _ = programs(folder)
    for script in (folder / "bin/erl", target / "erl"):
        text = re.sub(r"^( *ROOTDIR)=.*", rf"\1={root}", script.read_text(encoding="utf-8"), flags=re.M)
        # It may be a link to another installation's.
        script.unlink()
        write_script(script, text)


def write_script(file, text):
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)
