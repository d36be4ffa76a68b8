"""Backends that break one promise each: the local one, with a defect that somebody's backend really had."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agentrl.api import FileMissing, Resources, Sandbox, SandboxBackend, SandboxError, SandboxGone, SandboxSpec

Defect = Callable[["BrokenBackend"], None]


class BrokenSandbox:
    """Passes everything on to ``real``, by way of the backend's hooks."""

    def __init__(self, real: Sandbox, owner: BrokenBackend) -> None:
        self.real, self.owner, self.id = real, owner, real.id

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def exec(self, command, **options):
        return await self.owner.exec(self.real, command, **options)

    async def read_file(self, path, **options):
        return await self.owner.read_file(self.real, path, **options)

    async def write_file(self, path, data, **options):
        return await self.owner.write_file(self.real, path, data, **options)

    async def close(self):
        return await self.owner.close(self.real)


class BrokenBackend:
    """Passes everything on to ``real``; a defect replaces one of its methods."""

    def __init__(self, real: SandboxBackend, defect: Defect) -> None:
        self.real = real
        defect(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def create(self, spec, *, labels, lifetime_sec):
        return BrokenSandbox(await self.real.create(spec, labels=labels, lifetime_sec=lifetime_sec), self)

    async def attach(self, sandbox_id):
        return BrokenSandbox(await self.real.attach(sandbox_id), self)

    async def exec(self, real, command, **options):
        return await real.exec(command, **options)

    async def read_file(self, real, path, **options):
        return await real.read_file(path, **options)

    async def write_file(self, real, path, data, **options):
        return await real.write_file(path, data, **options)

    async def close(self, real):
        return await real.close()


def answers(change: Callable[[Any], Any]) -> Defect:
    """Every result of a command is changed."""

    def apply(broken: BrokenBackend) -> None:
        async def run(real, command, **options):
            return change(await real.exec(command, **options))

        broken.exec = run

    return apply


def asks(change: Callable[[Any, dict[str, Any]], Any]) -> Defect:
    """Every command is changed before it is run; ``change`` may alter its options."""

    def apply(broken: BrokenBackend) -> None:
        async def run(real, command, **options):
            return await real.exec(change(command, options), **options)

        broken.exec = run

    return apply


def specs(change: Callable[[SandboxSpec], SandboxSpec]) -> Defect:
    """Machines are other than asked for."""

    def apply(broken: BrokenBackend) -> None:
        async def create(spec, *, labels, lifetime_sec):
            return await broken.real.create(change(spec), labels=labels, lifetime_sec=lifetime_sec)

        broken.create = create

    return apply


def runs_twice(broken: BrokenBackend) -> None:
    async def run(real, command, **options):
        await real.exec(command, **options)
        return await real.exec(command, **options)

    broken.exec = run


def runs_on(broken: BrokenBackend) -> None:
    """A cancelled caller leaves the command running, which is seen however slow it is."""

    async def run(real, command, **options):
        if isinstance(command, str):
            command = command.replace("ls /tmp/late", "until ls /tmp/late; do sleep 0.02; done").replace(
                "600);", "20);"
            )
        return await asyncio.shield(asyncio.ensure_future(real.exec(command, **options)))

    broken.exec = run


def one_at_a_time(broken: BrokenBackend) -> None:
    lock = asyncio.Lock()

    async def run(real, command, **options):
        async with lock:
            return await real.exec(command, **{**options, "timeout_sec": 0.2})

    broken.exec = run


def leaves_files(broken: BrokenBackend) -> None:
    async def run(real, command, **options):
        await real.write_file(f"/tmp/job-{secrets.token_hex(4)}/exit", b"0")
        return await real.exec(command, **options)

    broken.exec = run


def trusts_a_file(broken: BrokenBackend) -> None:
    """The exit code comes from a file that anybody may write, under a name of ours."""

    async def run(real, command, **options):
        if not isinstance(command, str) or "exit 3" not in command:
            return await real.exec(command, **options)
        meddled = "until grep -q 0 /tmp/code; do sleep 0.02; done"
        waiting = f"({command}); echo $? > /tmp/code; {meddled}; cat /tmp/code"
        result = await real.exec(waiting, **{**options, "timeout_sec": 100})
        if result.timed_out:
            return result
        *out, code = result.stdout.splitlines() or [b""]
        if not code.isdigit():
            raise SandboxError("the exit code is unknown")
        return replace(result, exit_code=int(code), stdout=b"\n".join(out))

    broken.exec = run


def missing_is_empty(broken: BrokenBackend) -> None:
    async def read(real, path, **options):
        with suppress(FileMissing):
            return await real.read_file(path, **options)
        return b""

    broken.read_file = read


def reads_text(broken: BrokenBackend) -> None:
    async def read(real, path, **options):
        return (await real.read_file(path, **options)).decode(errors="replace").encode()

    broken.read_file = read


def ignores_modes(broken: BrokenBackend) -> None:
    async def write(real, path, data, mode=0o644):
        await real.write_file(path, data)

    broken.write_file = write


def follows_links(broken: BrokenBackend) -> None:
    async def write(real, path, data, mode=0o644):
        where = (await real.exec(["readlink", "-f", path], timeout_sec=30)).stdout.decode().removesuffix("\n")
        await real.write_file(where or path, data, mode=mode)

    broken.write_file = write


def does_not_close(broken: BrokenBackend) -> None:
    async def close(real):
        """Its lifetime will end it."""

    broken.close = close


def gone_is_a_failure(broken: BrokenBackend) -> None:
    """A command in a machine that died has an exit code."""

    async def run(real, command, **options):
        try:
            return await real.exec(command, **options)
        except SandboxGone:
            return type("Result", (), {"ok": False, "exit_code": 1, "timed_out": False})()

    broken.exec = run


def lives_for_ever(broken: BrokenBackend) -> None:
    async def create(spec, *, labels, lifetime_sec):
        return await broken.real.create(spec, labels=labels, lifetime_sec=3600)

    broken.create = create


def lists_everything(broken: BrokenBackend) -> None:
    async def list_all(labels):
        return await broken.real.list({})

    broken.list = list_all


def bakes_again(broken: BrokenBackend) -> None:
    async def prepare(image, resources, layers):
        anew = [replace(layer, name=layer.name + secrets.token_hex(4)) for layer in layers]
        return await broken.real.prepare(image, resources, anew)

    broken.prepare = prepare


def _env_in_argv(command, options):
    pairs = [f"export {name}={shlex.quote(value)}; " for name, value in (options.pop("env", None) or {}).items()]
    return "".join(pairs) + (command if isinstance(command, str) else shlex.join(command))


def _one_shell(command, options):
    """Every command in one login of the machine: exports stay."""
    text = command if isinstance(command, str) else shlex.join(command)
    return f"[ -e /tmp/.session ] && . /tmp/.session; {text}; code=$?; export -p > /tmp/.session; exit $code"


def _without_stdin(command, options):
    options.pop("stdin", None)
    return command


def _as_text(command, options):
    return command if isinstance(command, str) else " ".join(command)


DEFECTS: Mapping[str, tuple[Defect, tuple[str, ...]]] = {
    "both streams are one": (
        answers(lambda r: replace(r, stdout=r.stdout + r.stderr, stderr=b"")),
        ("streams_are_bytes", "control_bytes_stay_where_they_are", "output_is_capped"),
    ),
    "output is text": (
        answers(lambda r: replace(r, stdout=r.stdout.decode(errors="replace").encode())),
        ("streams_are_bytes",),
    ),
    "output is lines": (
        answers(lambda r: replace(r, stdout=r.stdout if r.stdout.endswith(b"\n") else r.stdout + b"\n")),
        ("control_bytes_stay_where_they_are", "cut_characters_are_whole"),
    ),
    "the head of output is kept": (
        answers(lambda r: replace(r, stdout=r.stdout[:1000], truncated=False)),
        ("output_is_capped", "endless_output_is_bounded"),
    ),
    "signals are minus one": (
        answers(lambda r: replace(r, exit_code=r.exit_code if r.exit_code < 128 else -1)),
        ("signals_are_real",),
    ),
    "failures are ones": (answers(lambda r: replace(r, exit_code=min(r.exit_code, 1))), ("exit_codes_are_real",)),
    "timeouts are failures": (answers(lambda r: replace(r, timed_out=False)), ("timeout_kills_the_tree",)),
    "a sequence meets a shell": (asks(_as_text), ("sequences_are_argv",)),
    "values of env are words of a command line": (asks(_env_in_argv), ("secrets_are_in_no_argv",)),
    "commands share a shell": (asks(_one_shell), ("env_does_not_leak",)),
    "stdin is dropped": (asks(_without_stdin), ("streams_are_bytes", "megabytes_of_stdin_arrive")),
    "a launch is repeated": (runs_twice, ("commands_run_once",)),
    "cancelled commands run on": (runs_on, ("cancel_kills", "an_early_cancel_leaves_nothing")),
    "one command at a time": (one_at_a_time, ("commands_overlap",)),
    "jobs leave their folders": (leaves_files, ("what_is_left_does_not_grow",)),
    "the exit code is in a file": (trusts_a_file, ("meddling_changes_no_verdict",)),
    "what is missing is empty": (missing_is_empty, ("reads_are_honest", "machines_are_apart")),
    "files are text": (reads_text, ("files_are_bytes",)),
    "modes are dropped": (ignores_modes, ("modes_hold",)),
    "links are followed": (follows_links, ("writes_are_honest",)),
    "close does nothing": (does_not_close, ("close_is_final_and_idempotent", "machines_are_listed_until_closed")),
    "a dead machine answers": (gone_is_a_failure, ("a_dead_machine_is_gone", "close_is_final_and_idempotent")),
    "labels do not matter": (lists_everything, ("machines_are_listed_until_closed",)),
    "layers are baked again": (bakes_again, ("layers_are_baked_once",)),
    "limits are dropped": (
        specs(lambda spec: replace(spec, resources=Resources())),
        ("pids_are_limited", "memory_is_limited"),  # a CPU that others keep busy is no limit that a test can miss
    ),
    "the network is the host's": (
        specs(lambda spec: replace(spec, network=True)),
        ("other_ports_are_not_reached",),
    ),
    "env of the machine is dropped": (specs(lambda spec: replace(spec, env={})), ("env_is_added",)),
}
