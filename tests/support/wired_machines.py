"""Local machines behind a wire: :class:`WiredSandbox` on real processes, with faults where a provider has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentrl.api import SandboxError, SandboxGone, SandboxThrottled, SandboxTransient, WiredSandbox
from agentrl_local.backend import LocalBackend

OUTPUT_CAP = 256_000
ENV_CAP, SCRIPT_CAP = 90_000, 60_000


class LocalWire:
    """A wire into a local machine that holds its users to the limits of :class:`agentrl.api.Wire`. ``calls``: what was asked."""

    def __init__(self, sandbox, shell="sh"):
        self.sandbox, self.shell, self.calls = sandbox, shell, []

    async def run(self, script: str, *, env: Mapping[str, str], timeout_sec: float, user: str | None):
        self.calls.append("run")
        assert script.isascii() and len(script) <= SCRIPT_CAP, len(script)
        size = sum(len(name) + len(value) for name, value in env.items())
        assert size <= ENV_CAP and all(value.isascii() and value.isprintable() for value in env.values()), size
        argv = [*self.shell.split(), "-c", script]
        result = await self.sandbox.exec(argv, env=env, timeout_sec=timeout_sec, user=user)
        if result.timed_out:
            raise SandboxError("no answer in time")
        assert len(result.stdout) <= OUTPUT_CAP and result.stdout.isascii(), len(result.stdout)
        assert not result.stderr, result.stderr
        return result.exit_code, result.stdout

    async def put(self, path, data):
        self.calls.append("put")
        await self.sandbox.write_file(path, data)

    async def get(self, path):
        self.calls.append("get")
        return await self.sandbox.read_file(path, max_bytes=1 << 30)


def lost_before():
    """The connection is refused: it never arrived."""

    async def fault(call):
        raise SandboxTransient("refused")

    return fault


def lost_after():
    """It arrived and was done, but the answer was cut."""

    async def fault(call):
        await call()
        raise SandboxError("cut")

    return fault


def throttled(retry_after_sec=None):
    """Too many requests."""

    async def fault(call):
        raise SandboxThrottled("slow down", retry_after_sec)

    return fault


def shortened():
    """Half of the answer comes, and nothing says that it is half."""

    async def fault(call):
        match await call():
            case (code, said):
                return code, said[: len(said) // 2]
            case bytes(data):
                return data[: len(data) // 2]

    return fault


def gone():
    """The machine is not there any more."""

    async def fault(call):
        raise SandboxGone("not found")

    return fault


class FaultyWire:
    """``wire`` with one fault of ``faults`` for each call, in their order; afterwards it works."""

    def __init__(self, wire, *faults: Callable):
        self.wire, self.faults = wire, list(faults)

    async def _pass(self, call):
        return await (self.faults.pop(0)(call) if self.faults else call())

    async def run(self, script, **options):
        return await self._pass(lambda: self.wire.run(script, **options))

    async def put(self, path, data):
        return await self._pass(lambda: self.wire.put(path, data))

    async def get(self, path):
        return await self._pass(lambda: self.wire.get(path))


def wired(machine, wire=None, **options) -> WiredSandbox:
    """``machine`` behind a wire."""
    wire = wire or LocalWire(machine)
    return WiredSandbox(machine.id, wire, close=machine.close, host_url=machine.host_url, **options)


class WiredBackend:
    """The local backend, each machine behind a wire."""

    def __init__(self, backend: LocalBackend, shell: str = "sh"):
        self._backend, self._shell = backend, shell

    def __getattr__(self, name):
        return getattr(self._backend, name)

    async def create(self, spec, *, labels, lifetime_sec):
        machine = await self._backend.create(spec, labels=labels, lifetime_sec=lifetime_sec)
        return wired(machine, LocalWire(machine, self._shell))
