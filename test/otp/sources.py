"""The sources of the installed Erlang/OTP's suites, from Debian, and the suites compiled from them."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from plan import C_COMPILER, HELPERS, PATCHES

HERE = Path(__file__).resolve().parent


class Unavailable(Exception):
    """This machine cannot run the suites; the text says why."""


class Failed(Exception):
    """Something that should have worked did not; the text says what."""


def output_of(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout.strip()


def otp():
    """The version of the OTP in PATH, and where it is."""
    root = Path(output_of("erl", "-noinput", "-boot", "start_clean", "-eval",
                          'io:format("~ts", [code:root_dir()]), halt().'))
    release, = (root / "releases").glob("[0-9]*/OTP_VERSION")
    return release.read_text(encoding="utf-8").strip(), root


def fetched(version, cache):
    """The folder `cache`/VERSION with the folders of plan.py, fetched if it is missing."""
    folder = cache / version
    if not folder.exists():
        unpacked = cache / f"{version}.tmp"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpack(download(version, unpacked), unpacked / "tree")
        (unpacked / "tree").rename(folder)
        shutil.rmtree(unpacked)
    return folder


def archive(version, cache):
    """The archive of all sources, `cache`/VERSION.orig, fetched if it is missing."""
    file = cache / f"{version}.orig"
    if not file.exists():
        folder = cache / f"{version}.orig.tmp"
        shutil.rmtree(folder, ignore_errors=True)
        download(version, folder).rename(file)
        shutil.rmtree(folder)
    return file


def download(version, folder):
    """Debian's archive of the upstream sources, without Debian's patches: the suites here have none."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-query")):
        raise Unavailable("the sources of the suites come from Debian, and this machine has no apt-get")
    try:
        package = output_of("dpkg-query", "-W", "-f", "${Version}", "erlang-base")
    except Failed:
        package = ""
    if not re.match(rf"1:{re.escape(version)}\b", package):
        raise Unavailable(f"the Erlang/OTP {version} in PATH is not Debian's, whose sources apt-get could fetch")
    apt = apt_get(folder / "apt", "deb-src")
    output_of(*apt, "update")
    # A mirror may have the upstream sources, which all revisions of the package share, and no longer this revision.
    done = subprocess.run([*apt, "--download-only", "source", f"erlang={package}"], cwd=folder, capture_output=True,
                          text=True)
    archives = list(folder.glob("erlang_*.orig.tar.*"))
    if not archives:
        raise Unavailable(f"apt-get source erlang={package} has failed:\n{done.stdout}{done.stderr}")
    return archives[0]


def apt_get(folder, kind):
    """The command, with the machine's own sources of packages turned into sources of this kind, deb or deb-src. Nothing
    outside the folder is read but keys, and nothing is written."""
    parts = folder / "parts"
    parts.mkdir(parents=True)
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "cache/archives/partial").mkdir(parents=True)
    etc = Path("/etc/apt")
    for file in [etc / "sources.list", *(etc / "sources.list.d").glob("*.list"),
                 *(etc / "sources.list.d").glob("*.sources")]:
        if file.exists():
            text = re.sub(r"^deb(-src)?\b|(?<=^Types:) *deb\b.*", kind, file.read_text(encoding="utf-8"), flags=re.M)
            (parts / file.name).write_text(text, encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": parts, "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache", "APT::Sandbox::User": "root",
        # The release file of a frozen mirror is past its date. Its signature is checked as ever.
        "Acquire::Check-Valid-Until": "false",
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]


def unpack(archive, folder):
    wanted = re.compile(rf"[^/]+/(({'|'.join(map(re.escape, HELPERS))})/.*|lib/\w+/src/\w+\.hrl)")
    with tarfile.open(archive) as tar:
        for member in tar:
            match = wanted.fullmatch(member.name)
            if match and member.isfile():
                path = folder / match[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())


def built(suites, version, root, source, folder):
    """Compiles the suites into `folder`, with the folders of plan.py, and this folder's modules into `folder`/hooks."""
    release = int(version.split(".")[0])
    shutil.rmtree(folder, ignore_errors=True)
    for origin in {suite.folder for suite in suites}:
        shutil.copytree(source / origin, folder / origin)
        for patch in PATCHES:
            if patch.file.startswith(origin) and release >= patch.since:
                apply(patch, folder / patch.file)
        modules = [*HELPERS[origin], *(suite.name for suite in suites if suite.folder == origin)]
        files = [folder / origin / f"{module}.erl" for module in modules]
        compile_erlang([file for file in files if file.exists()], folder / origin, source)
    # What the suites' Makefiles would make.
    for program in folder.glob("*/*/test/distribution_SUITE_data/run.erl"):
        compile_erlang([program], program.parent, source)
    for program in folder.glob("*/*/test/erpc_SUITE_data/fwd_node.c") if C_COMPILER else ():
        output_of(C_COMPILER, f"-I{root}/usr/include", program, "-o", program.with_suffix(""), f"-L{root}/usr/lib",
                  "-lei", "-pthread")
    compile_erlang(sorted(HERE.glob("*.erl")), folder / "hooks", source)


def apply(patch, file):
    text = file.read_text(encoding="utf-8")
    if patch.old not in text:
        raise Failed(f"{patch.file}: this OTP's has no {patch.old!r}, which plan.py changes")
    file.write_text(text.replace(patch.old, patch.new), encoding="utf-8")


def compile_erlang(files, target, source):
    target.mkdir(parents=True, exist_ok=True)
    includes = [word for src in sorted(source.glob("lib/*/src")) for word in ("-I", src)]
    output_of("erlc", "-W0", "+debug_info", *includes, *files, cwd=target)
