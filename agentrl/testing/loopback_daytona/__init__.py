"""A Daytona of one's own on this host's loopback: the real SDK talks to it, and commands really run.

It answers what the SDK (0.190 to 0.226) asks for: machines from images and snapshots, their clocks (auto-stop by inactivity, time to
live, ephemeral), commands, sessions with logs, files, previews with HTTP and WebSocket, snapshots with build states, and
Socket.IO. Quotas, statuses and texts are the provider's. Not here: accounts, volumes, PTYs, git and language servers, images
themselves (every image is this host's own files), limits of machines. A test of a plugin that needs machines in a cloud::

    from daytona import AsyncDaytona, CreateSandboxFromSnapshotParams, DaytonaConfig

    async def test_a_lost_answer_leaves_no_machine():
        async with LoopbackDaytona() as server:
            server.faults.add("reset", "create")  # the machine is made, the answer is lost
            config = DaytonaConfig(api_key=server.api_key, api_url=server.url, target="loopback")
            async with AsyncDaytona(config) as daytona:
                with pytest.raises(DaytonaError):
                    await daytona.create(CreateSandboxFromSnapshotParams(labels={"run": "1"}))
                async for sandbox in daytona.list(ListSandboxesQuery(labels={"run": "1"})):
                    await sandbox.delete()
            assert server.faults.spent and not server.machines
            assert server.requests.count("POST /api/sandbox") == 1

:mod:`agentrl.testing.faults` lists what can go wrong on demand.
"""

from agentrl.testing.loopback_daytona.server import LoopbackDaytona

__all__ = ["LoopbackDaytona"]
