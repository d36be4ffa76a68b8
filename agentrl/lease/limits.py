"""The limits of one provider account, shared by all processes of one user on this host.

Not here: what is limited (:mod:`agentrl.lease.starter`), and how (:mod:`agentrl.lease.slots`, :mod:`agentrl.lease.pace`).
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from agentrl.errors import SettingsError
from agentrl.lease.pace import Pace
from agentrl.lease.slots import Slots


class Limits:
    """What one account allows. ``starting``: creations under way; ``live``: machines from before their creation until their
    deletion is confirmed."""

    def __init__(self, folder: Path, *, starting: int, per_sec: float = 0.0, live: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.starting = Slots(folder / "starting", starting)
        self.live = Slots(folder / "live", live)
        self.pace = Pace(folder / "pace", per_sec)

    def close(self) -> None:
        """Free what this process holds."""
        for part in (self.starting, self.live, self.pace):
            part.close()


def account_folder(root: Path | None, backend: str, account: str) -> Path:
    """Where the limits of an account lie. Raises: SettingsError when ``root`` (None: in the temp folder) is not ours."""
    root = root or Path(tempfile.gettempdir(), f"agentrl-limits-{os.geteuid()}")
    with suppress(FileExistsError):
        root.mkdir(parents=True, mode=0o700)
    info = root.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise SettingsError(f"{root} is not a folder of ours: set AGENTRL_LIMITS_DIR to one")
    return root / hashlib.sha256(f"{backend}\0{account}".encode()).hexdigest()[:16]
