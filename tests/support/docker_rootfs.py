"""A container image made of this host's own files: Debian packages with all they depend on, and two accounts. No network.

``python tests/support/docker_rootfs.py IMAGE`` imports it into the engine of ``DOCKER_HOST``.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

SEEDS = (
    "base-files", "bash", "ca-certificates", "coreutils", "curl", "dash", "diffutils", "findutils", "git", "grep", "gzip", "hostname",
    "libc-bin", "ncurses-base", "procps", "python3", "sed", "tar", "tmux", "util-linux",
)  # fmt: skip
LEFT_OUT = re.compile(r"/usr/share/(man|doc|locale|info|lintian|zoneinfo|bash-completion)/|/__pycache__/")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FOLDERS = {
    "proc": 0o555, "sys": 0o555, "dev": 0o755, "run": 0o755, "tmp": 0o1777, "var/tmp": 0o1777, "opt": 0o755, "usr/local/bin": 0o755,
    "root": 0o700, "home/agent": 0o755,
}  # fmt: skip
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000:agent:/home/agent:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000::::::\nagent:*:19000::::::\nnobody:*:19000::::::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
MADE = ("/etc/ld.so.cache", "/etc/ssl/certs/ca-certificates.crt")
"""What installing makes, and no package lists."""


def closure(seeds: Iterable[str]) -> set[str]:
    """``seeds``, as far as they are installed, with everything that they depend on."""
    columns = "${Package}\t${db:Status-Status}\t${Depends}, ${Pre-Depends}\t${Provides}\n"
    depends: dict[str, str] = {}
    provider: dict[str, str] = {}
    for line in _said("dpkg-query", "--show", f"--showformat={columns}").splitlines():
        name, status, needs, provides = line.split("\t")
        if status == "installed":
            depends[name] = needs
            provider |= dict.fromkeys(_names(provides), name)
    todo, found = list(seeds), set()
    while todo:
        name = todo.pop()
        if name in depends and name not in found:
            found.add(name)
            for clause in depends[name].split(","):
                todo += [provider.get(n, n) for n in _names(clause.replace("|", ",")) if n in depends or n in provider][
                    :1
                ]
    return found


def files(packages: Iterable[str]) -> set[Path]:
    """Where their files really are, with the folders and links that lead there."""
    listed = {line for line in _said("dpkg-query", "--listfiles", *packages).splitlines() if line.startswith("/")}
    paths = {Path(line) for line in listed if line != "/." and not LEFT_OUT.search(line + "/")}
    paths |= {Path(name) for name in MADE} | {path for path in Path("/").iterdir() if path.is_symlink()}
    paths = {path.parent.resolve() / path.name for path in paths}
    paths |= set(_alternatives(paths))
    return {path for path in paths | {parent for path in paths for parent in path.parents} if path != Path("/")}


def _alternatives(paths: set[Path]) -> Iterator[Path]:
    """Names such as ``/usr/bin/awk`` that lead over ``/etc/alternatives`` to one of ``paths``."""
    for link in Path("/usr/bin").iterdir():
        if link.is_symlink() and link.readlink().is_relative_to("/etc/alternatives") and link.resolve() in paths:
            yield from (link, link.readlink())


def write_rootfs(target: IO[bytes], seeds: Iterable[str] = SEEDS) -> None:
    """The tar of the image. Nothing of this host's accounts is in it."""
    with tarfile.open(fileobj=target, mode="w|") as tar:
        for path in sorted(files(closure(seeds))):
            name = str(path.relative_to("/"))
            if name not in FILES and name not in FOLDERS and (path.exists() or path.is_symlink()):
                tar.add(path, name, recursive=False)
        for name, mode in FOLDERS.items():
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            folder.uid = folder.gid = 1000 if "agent" in name else 0
            tar.addfile(folder)
        for name, text in FILES.items():
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(text), 0o600 if "shadow" in name else 0o644
            tar.addfile(file, io.BytesIO(text.encode()))


def import_rootfs(image: str, docker_host: str, *changes: str, seeds: Iterable[str] = SEEDS) -> None:
    """Make ``image`` on an engine; ``changes`` are lines of a Dockerfile. Raises: CalledProcessError."""
    lines = [word for change in (f"ENV PATH={PATH}", 'CMD ["bash"]', *changes) for word in ("--change", change)]
    command = ["docker", "--host", docker_host, "import", *lines, "-", image]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as docker:
        assert docker.stdin is not None
        write_rootfs(docker.stdin, seeds)
        docker.stdin.close()
        if docker.wait() != 0:
            raise subprocess.CalledProcessError(docker.returncode, command)


def _names(clause: str) -> list[str]:
    return [re.split(r"[\s:(]", word.strip())[0] for word in clause.split(",") if word.strip()]


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    import_rootfs(sys.argv[1], os.environ["DOCKER_HOST"])
