"""E2B on this machine: a server that the unmodified ``e2b`` SDK talks to, whose machines really run commands.

For tests of whatever stands on that SDK, without an account and without a network::

    async with LoopbackE2B() as server:
        os.environ.update(server.environment())            # E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY
        sandbox = await e2b.AsyncSandbox.create(timeout=60, metadata={"owner": "me"})
        assert (await sandbox.commands.run("echo hello")).stdout == "hello\\n"

        server.faults.add("reset", "exec")                 # the next command runs, but its answer is lost
        server.faults.add("throttled", "create", times=2, retry_after_sec=1)
        assert server.machines[sandbox.sandbox_id].metadata == {"owner": "me"}
        await sandbox.kill()
        assert not server.machines                         # nothing is left
        assert server.requests[0] == "POST /v2/sandboxes"  # what the SDK asked for, in order

What it has: sandboxes (create with idempotency keys, list with filters and pages, timeouts, connect, kill), commands (with their
streams, signals, stdin, re-attachment), files, signed URLs, the file system service, templates built from their steps, ports inside
by HTTP and WebSocket, and the faults of :mod:`agentrl.testing.faults`. What it has not: memory snapshots, PTYs, volumes, watching folders,
limits, and isolation that is meant to hold (:mod:`agentrl.testing.guest`).
"""

from __future__ import annotations

from agentrl.testing.loopback_e2b.server import LoopbackE2B

__all__ = ["LoopbackE2B"]
