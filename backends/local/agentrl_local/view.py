"""What a sandbox sees of the host: chosen top-level folders, each under a private copy-on-write overlay.

Not a copy and not a container image. ``/etc`` is a snapshot of what every user may read; elsewhere, files that not everyone
may read are hidden when we are root (otherwise the kernel refuses them anyway).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentrl_local.records import remove_tree

LOOKS, LOOK_AGAIN_SEC = 10, 0.3
SKELETON = ("dev", "home", "proc", "root", "run", "srv", "tmp", "usr", "var/lib", "var/log", "var/tmp", "var/cache")
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@dataclass(frozen=True, slots=True)
class View:
    """``overlays``: folder inside → its lower folders on the host, bottom first. ``python``: runs the exec server."""

    overlays: tuple[tuple[str, tuple[Path, ...]], ...]
    read_only: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    python: str
    path: str


def survey(folders: Sequence[str], store: Path) -> View:
    """Look at the host; snapshots and masks go to ``store``. Blocking. When something goes away meanwhile, as while packages are
    installed, look again."""
    for _ in range(LOOKS - 1):
        with suppress(FileNotFoundError):
            return _survey(folders, store)
        time.sleep(LOOK_AGAIN_SEC)
    return _survey(folders, store)


def _survey(folders: Sequence[str], store: Path) -> View:
    overlays: list[tuple[str, tuple[Path, ...]]] = []
    read_only, links = [], []
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for folder in folders:
        path = Path(folder)
        if path.is_symlink():
            links.append((folder, str(path.readlink())))
        elif not path.is_dir():
            continue
        elif folder == "/etc":
            overlays.append((folder, (snapshot(path, store / "etc"),)))
        elif any(mount == folder or mount.startswith(folder + "/") for mount in mounts):
            read_only.append(folder)  # the kernel clones no lower tree with mounts below it
        else:
            overlays.append((folder, (path, *mask(path, store / "masks"))))
    prefixes = [p for p in dict.fromkeys((sys.base_prefix, sys.prefix)) if not _within(p, folders)]
    bins = [f"{sys.prefix}/bin"] if sys.prefix != "/usr" else []
    system = Path("/usr/bin/python3")
    python = system if system.exists() else Path(sys.executable).resolve()
    search = ":".join(dict.fromkeys([*bins, *SYSTEM_PATH]))
    return View(tuple(overlays), (*read_only, *prefixes), tuple(links), str(python), search)


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry below; a folder that not everyone may enter is an entry, but not entered."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            yield entry
            if entry.is_dir(follow_symlinks=False) and is_public(entry):
                yield from _walk(Path(entry.path))


def is_public(entry: os.DirEntry[str]) -> bool:
    """Whether every user of the host may read it."""
    mode = entry.stat(follow_symlinks=False).st_mode
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return stat.S_ISLNK(mode) or mode & wanted == wanted


def _key(entries: Sequence[os.DirEntry[str]]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        info = entry.stat(follow_symlinks=False)
        digest.update(os.fsencode(f"{entry.path}\0{info.st_mode}\0{info.st_size}\0{info.st_mtime_ns}\n"))
    return digest.hexdigest()[:16]


def _publish(built: Path, target: Path) -> Path:
    """Move into place; another process may have been faster with the same content."""
    try:
        built.rename(target)
    except OSError:
        remove_tree(built)
    return target


def snapshot(source: Path, store: Path) -> Path:
    """A copy of what is public in ``source``, ours to change, made once per content."""
    entries = [entry for entry in _walk(source) if is_public(entry)]
    target = store / _key(entries)
    if target.exists():
        return target
    built = store / f"{target.name}.{os.getpid()}.{os.urandom(4).hex()}"
    built.mkdir(parents=True)
    try:
        for entry in entries:
            _copy(entry, built / os.path.relpath(entry.path, source))
    except OSError:
        remove_tree(built)
        raise
    (built / "hosts").write_text("127.0.0.1 localhost sandbox\n::1 localhost\n")
    resolver = source / "resolv.conf"
    if resolver.is_symlink() and resolver.exists():  # it points into /run, which no sandbox sees
        (built / "resolv.conf").unlink()
        shutil.copyfile(resolver, built / "resolv.conf")
    return _publish(built, target)


def _copy(entry: os.DirEntry[str], copy: Path) -> None:
    if entry.is_symlink():
        copy.symlink_to(Path(entry.path).readlink())
    elif entry.is_dir():
        copy.mkdir()
    elif entry.is_file():
        shutil.copy2(entry.path, copy)


def mask(folder: Path, store: Path) -> tuple[Path, ...]:
    """An overlay layer of whiteouts over what only root may read; nothing when we are not root, or for /usr itself.

    ``/usr`` is the distribution's own: only ``/usr/local`` is looked through.
    """
    scanned = folder / "local" if folder == Path("/usr") else folder
    if os.geteuid() != 0 or not scanned.is_dir():
        return ()
    hidden = [entry for entry in _walk(scanned) if not is_public(entry)]
    if not hidden:
        return ()
    target = store / _key(hidden)
    if target.exists():
        return (target,)
    built = store / f"{target.name}.{os.getpid()}.{os.urandom(4).hex()}"
    built.mkdir(parents=True)
    for entry in hidden:
        whiteout = built / os.path.relpath(entry.path, folder)
        whiteout.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(whiteout, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    for below, names, _ in os.walk(built):
        for name in names:
            copy = Path(below, name)
            shutil.copystat(folder / copy.relative_to(built), copy)
    shutil.copystat(folder, built)
    return (_publish(built, target),)
