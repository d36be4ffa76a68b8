"""Containers as sandboxes, on a real engine: what the conformance kit, which knows no images, cannot ask."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys

import pytest
from docker_engine import IMAGE, LABELS, said
from provider import until

from agentrl.api import Resources, SandboxError, SandboxGone, SandboxRefused, SandboxSpec, kill_agent_processes
from agentrl.lease import collect_garbage


async def test_an_entrypoint_that_swallows_commands_is_put_aside(docker_backend, derive, machine):
    image = derive('ENTRYPOINT ["/bin/false"]', 'CMD ["swallowed"]', "ENV FROM_IMAGE=1", "WORKDIR /somewhere")
    async with machine(docker_backend, image=image, env={"OURS": "2"}) as sandbox:
        assert await said(sandbox, "pwd; echo $FROM_IMAGE $OURS") == "/somewhere\n1 2"


async def test_an_image_runs_as_its_user_and_a_setting_overrules_it(docker_backend, opened, derive, machine):
    image = derive("USER agent")
    async with machine(docker_backend, image=image) as sandbox:
        assert await said(sandbox, "id -un") == "agent"
        assert await said(sandbox, "id -un", user="root") == "root"
    async with machine(opened(user="1000:1000"), reach=()) as sandbox:
        assert await said(sandbox, "id -u; id -g; touch /tmp/x && stat -c %U /tmp/x") == "1000\n1000\nagent"


async def test_a_user_that_the_image_does_not_know_is_refused(docker_backend, machine):
    async with machine(docker_backend) as sandbox:
        with pytest.raises(SandboxRefused, match="nobody-of-that-name"):
            await sandbox.exec("true", user="nobody-of-that-name", timeout_sec=60)


async def test_what_kills_everything_inside_leaves_the_machine(docker_backend, machine):
    async with machine(docker_backend) as sandbox:
        with pytest.raises(SandboxError, match="killed"):  # itself included
            await sandbox.exec("kill -STOP 1; kill -9 1; kill -9 -1", timeout_sec=60)
        await sandbox.exec("setsid sleep 600 >/dev/null 2>&1 &", timeout_sec=60)
        assert await kill_agent_processes(sandbox) > 0
        gone = "until [ $(pgrep -c sleep) = 1 ]; do sleep 0.05; done"  # what was killed may still be ending
        assert await said(sandbox, f"{gone}; ps -o comm= -p 1") == "sleep"


async def test_orphans_leave_no_zombies(docker_backend, machine):
    async with machine(docker_backend) as sandbox:
        await sandbox.exec("for i in 1 2 3 4 5; do (setsid sleep 600 &); done", timeout_sec=60)
        end = "until [ $(pgrep -cf '^sleep 600') = 5 ]; do sleep 0.05; done; pkill -f '^sleep 600'"
        gone = "until [ $(pgrep -c sleep) = 1 ]; do sleep 0.05; done"  # it counts zombies, too
        assert (await sandbox.exec(f"{end}; {gone}", timeout_sec=60)).ok


async def test_a_process_that_needs_too_much_memory_is_killed_and_the_machine_lives(docker_backend, machine):
    async with machine(docker_backend, resources=Resources(memory_mb=100)) as sandbox:
        result = await sandbox.exec(["python3", "-c", "x = b'x' * 400_000_000"], timeout_sec=60)
        assert result.exit_code == 137 and not result.timed_out
        assert await said(sandbox, "echo alive") == "alive"


async def test_more_processors_than_there_are_is_no_error(docker_backend, machine):
    async with machine(docker_backend, resources=Resources(cpus=500)) as sandbox:
        assert await said(sandbox, "echo fine") == "fine"


async def test_a_terminal_multiplexer_works(docker_backend, machine):
    async with machine(docker_backend) as sandbox:
        await sandbox.exec("tmux new-session -d -s t 'echo seen in a terminal; exec sleep 600'", timeout_sec=60)
        look = "until tmux capture-pane -p -t t | grep seen; do sleep 0.05; done"
        assert await said(sandbox, look) == "seen in a terminal"


async def test_a_container_that_is_killed_ends_what_runs_in_it(docker_backend, machine, docker):
    async with machine(docker_backend) as sandbox:
        under_way = asyncio.create_task(sandbox.exec("touch /tmp/on; sleep 600", timeout_sec=900))
        await sandbox.exec("until [ -e /tmp/on ]; do sleep 0.02; done", timeout_sec=60)
        await asyncio.to_thread(docker, "kill", sandbox.id)
        for call in (under_way, sandbox.exec("true", timeout_sec=60), sandbox.write_file("/tmp/x", b"")):
            with pytest.raises(SandboxGone, match=sandbox.id):
                await call


OTHER = """
import asyncio, json, sys
from agentrl_docker.backend import DockerBackend
from agentrl_docker.settings import DockerSettings

async def main(host, name):
    backend = DockerBackend(DockerSettings(host=host))
    sandbox = await backend.attach(name)
    result = await sandbox.exec("cat /tmp/shared; id -un; pwd", timeout_sec=60)
    await sandbox.write_file("/tmp/theirs", b"back")
    await backend.aclose()
    print(json.dumps(result.stdout.decode()))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_another_process_attaches(docker_backend, host, derive, machine):
    image = derive("USER agent", "WORKDIR /home/agent")
    async with machine(docker_backend, image=image) as sandbox:
        await sandbox.write_file("/tmp/shared", b"ours\n")
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OTHER, host, sandbox.id, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await other.communicate()
        assert json.loads(out) == "ours\nagent\n/home/agent\n"
        assert await sandbox.read_file("/tmp/theirs") == b"back"
    with pytest.raises(SandboxGone):
        await docker_backend.attach(sandbox.id)


async def test_other_peoples_containers_are_left_alone(docker_backend, docker):
    name = f"somebodys-{secrets.token_hex(4)}"
    docker("run", "--detach", "--network", "none", "--name", name, IMAGE, "sleep", "600")
    try:
        with pytest.raises(SandboxGone, match="of ours"):
            await docker_backend.attach(name)
        assert name not in [info.id for info in await docker_backend.list({})]
        await docker_backend.delete(name)
        assert docker("ps", "--quiet", "--filter", f"name={name}")
    finally:
        docker("rm", "--force", name)


async def test_volumes_of_an_image_go_with_the_machine(docker_backend, derive, machine, docker):
    image = derive("VOLUME /data")
    async with machine(docker_backend, image=image) as sandbox:
        await sandbox.write_file("/data/x", b"x")
        volume = docker("inspect", "--format", "{{(index .Mounts 0).Name}}", sandbox.id)
        assert volume in docker("volume", "ls", "--quiet").split()
    await until(lambda: volume not in docker("volume", "ls", "--quiet").split())


async def test_garbage_is_collected_started_or_not(docker_backend, docker):
    run = f"dead-{secrets.token_hex(4)}"
    labels = {"agentrl-run": run, "agentrl-rollout": "r"}
    running = await docker_backend.create(SandboxSpec(), labels=labels, lifetime_sec=3600)
    words = [
        word for key, value in {**labels, "agentrl-sandbox": "1"}.items() for word in ("--label", f"{key}={value}")
    ]
    never_ran = f"agentrl-{secrets.token_hex(8)}"
    docker("create", "--name", never_ran, *words, IMAGE)
    found = await collect_garbage(docker_backend, runs={run})
    assert {(garbage.id, garbage.error) for garbage in found} == {(running.id, ""), (never_ran, "")}
    assert await docker_backend.list({"agentrl-run": run}) == []


async def test_labels_that_were_given_are_those_that_are_listed(docker_backend, machine):
    async with machine(docker_backend) as sandbox:
        [info] = [info for info in await docker_backend.list(LABELS) if info.id == sandbox.id]
        assert info.labels == LABELS
