"""A tmux terminal in the sandbox: keys in, what is new on the screen out, one command of the sandbox for each batch."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Sequence

from agentrl.api import ExecResult, HarnessError, Layer, Sandbox
from agentrl_terminus_2.reply import Keystrokes

WIDTH, HEIGHT = 160, 40
HISTORY_LINES = 10_000_000
MAX_OUTPUT_BYTES = 10_000
# tmux refuses commands above its message size of 16 KiB ("command too long"); longer keys are pasted.
MAX_KEYS_BYTES = 12_000
EXEC_SLACK_SEC = 60.0
_SESSION = "agent"
_INSTALL = (
    "command -v tmux || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends tmux; } "
    "|| apk add --no-cache tmux || dnf install -y tmux || yum install -y tmux || pacman -S --noconfirm tmux"
)

TMUX_LAYER = Layer("tmux", commands=(_INSTALL,))
"""Brings tmux into an image that lacks it."""


class TerminalDied(Exception):
    """The terminal's shell has ended, by the agent's own doing."""


class Terminal:
    """One terminal. ``socket`` is private, so that a tmux which the agent starts is another one."""

    def __init__(self, sandbox: Sandbox, workdir: str) -> None:
        self._sandbox, self._workdir = sandbox, workdir
        self._tmux = f"tmux -L agentrl-{uuid.uuid4().hex[:12]}"
        self._before: str | None = None

    async def start(self) -> str:
        """Start it and return the screen. Raises: HarnessError without tmux."""
        # The limit must stand before the session starts: a pane keeps the one that it was born with.
        options = f"set-option -g history-limit {HISTORY_LINES}"
        shell = f"new-session -d -s {_SESSION} -x {WIDTH} -y {HEIGHT} -c {shlex.quote(self._workdir)} 'bash --login'"
        script = f"export TERM=xterm-256color SHELL=/bin/bash\n{self._tmux} -f /dev/null start-server \\; {options} \\; {shell}"
        result = await self._run(script, 0.0)
        if not result.ok:
            raise HarnessError(
                f"tmux did not start in the sandbox (is it in the image?): {result.stderr.decode(errors='replace')[-500:]}"
            )
        return await self.type(())

    async def type(self, commands: Sequence[Keystrokes]) -> str:
        """Send the keys, wait after each as long as it says, and return what is new, at most 10 kB.

        Raises: TerminalDied, SandboxError.
        """
        mark = uuid.uuid4().hex
        lines = [line for command in commands for line in await self._lines(command)]
        lines.append(f"{self._tmux} capture-pane -p -S - -t {_SESSION} || exit 99; echo {mark}")
        lines.append(f"{self._tmux} capture-pane -p -t {_SESSION} || exit 99")
        result = await self._run("\n".join(lines), sum(command.duration_sec for command in commands))
        if result.exit_code == 99:
            raise TerminalDied("the terminal's shell has ended")
        history, _, screen = result.stdout.decode("utf-8", "replace").rpartition(f"{mark}\n")
        return limited(self._new(history, screen))

    def _new(self, history: str, screen: str) -> str:
        before, self._before = self._before, history
        if before is not None and (new := new_part(before, history)):
            return f"New Terminal Output:\n{new}"
        return f"Current Terminal Screen:\n{screen}"

    async def _lines(self, command: Keystrokes) -> list[str]:
        """The shell lines that send one command's keys and wait."""
        lines: list[str] = []
        if len(command.keys.encode()) > MAX_KEYS_BYTES:
            path = f"/tmp/.keys-{uuid.uuid4().hex}"  # random: nothing that the agent could have put there
            await self._sandbox.write_file(path, command.keys.encode("utf-8", "replace"), mode=0o600)
            paste = f"load-buffer -b keys {path} \\; paste-buffer -d -b keys -t {_SESSION}"
            lines.append(f"{self._tmux} {paste}; rm -f {path}")
        elif command.keys:
            keys = command.keys.encode("utf-8", "replace").decode().replace("\0", "")
            lines.append(f"{self._tmux} send-keys -t {_SESSION} -- {shlex.quote(keys)}")
        if command.duration_sec > 0:
            lines.append(f"sleep {command.duration_sec:g}")
        return lines

    async def _run(self, script: str, waits_sec: float) -> ExecResult:
        # By stdin: keys may be longer than an argument can be.
        return await self._sandbox.exec(
            ["bash", "-s"], stdin=script.encode(), cwd=self._workdir, timeout_sec=waits_sec + EXEC_SLACK_SEC
        )


def new_part(before: str, now: str) -> str:
    """What ``now`` shows behind ``before``, from the beginning of its last line on; empty when that cannot be told or is
    nothing but white space."""
    old = before.strip()
    start = now.find(old)
    if start < 0:
        return ""
    new = now[start + old.rfind("\n") + 1 :] if old else now
    return new if new.strip() != old[old.rfind("\n") + 1 :].strip() else ""


def limited(text: str, max_bytes: int = MAX_OUTPUT_BYTES) -> str:
    """Head and tail of ``text`` when it is longer than ``max_bytes`` in UTF-8."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    head = data[: max_bytes // 2].decode(errors="ignore")
    tail = data[-(max_bytes // 2) :].decode(errors="ignore")
    omitted = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... output limited to {max_bytes} bytes; {omitted} interior bytes omitted ...]\n{tail}"
