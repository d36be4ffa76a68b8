"""The official package as we talk to it: one child process, started when first asked, started again when it died."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from agentrl.api import GraderError, environment

WORKER = Path(__file__).with_name("worker.py")
ANSWER_SEC = 300.0
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")


class Official:
    """Asks :mod:`agentrl_swebench.worker`, one question at a time. Safe for threads; blocks."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._said: IO[bytes] | None = None

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """The worker's answer. Raises: GraderError (it refuses, it died, it was silent for five minutes)."""
        line = json.dumps({"do": verb, **arguments})
        with self._lock:
            process = self._running()
            timer = threading.Timer(ANSWER_SEC, process.kill)
            timer.start()
            try:
                answer = self._exchange(process, line)
            finally:
                timer.cancel()
        if "error" in answer:
            raise GraderError(f"the swebench package refuses: {answer['error']}")
        found: dict[str, Any] = answer["ok"]
        return found

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the process)
        env = {name: value for name, value in environment().items() if name in _PASSED_ON}
        self._process = subprocess.Popen(
            # Isolated: this folder's modules must not stand in for installed ones.
            [self._python, "-I", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**env, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONUTF8": "1"},
            cwd=tempfile.gettempdir(),
            encoding="utf-8",
        )
        weakref.finalize(self, _end, self._process, self._said)
        return self._process

    def _exchange(self, process: subprocess.Popen[str], line: str) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:
            process.kill()
            code = process.wait()
            raise GraderError(f"the swebench worker ended with {code}: {self._last_words()}") from error
        return answer

    def _last_words(self) -> str:
        if self._said is None:
            return ""
        self._said.seek(0)
        return self._said.read()[-2000:].decode(errors="replace").strip()


def _end(process: subprocess.Popen[str], said: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, said):
        if stream is not None:
            try:
                stream.close()
            except OSError:  # what was not written yet has no reader any more
                pass
