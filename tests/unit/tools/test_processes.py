"""Nothing that an agent started outlives the call, and the machine itself does."""

from __future__ import annotations

import pytest

from agentrl.tools.processes import kill_agent_processes, kill_tagged

# By command line, not by name: a process that is being taken down keeps its name a little longer.
SLEEPERS = r"cat /proc/[0-9]*/cmdline | tr '\0' '\n' | grep -cx '[s]leep'"


async def start(sandbox, script, *, sleeping, env=None):
    """Run ``script`` in the background of the sandbox; returns when so many ``sleep`` run in all."""
    wait = f"until [ $({SLEEPERS}) = {sleeping} ]; do :; done"
    result = await sandbox.exec(f"{{ {script}\n}} >/dev/null 2>&1; {wait}", env=env, timeout_sec=60)
    assert result.ok


async def sleepers(sandbox):
    return int((await sandbox.exec(f"{SLEEPERS} || :", timeout_sec=60)).stdout)


@pytest.mark.parametrize(
    "left_behind",
    [
        "sleep 98765 &",
        "(setsid nohup sleep 98765 >/dev/null 2>&1 &)",
        "(trap '' TERM INT HUP; exec -a 'odd) name' bash -c 'trap \"\" TERM; sleep 98765; :') &",
        "cp $(command -v sleep) /tmp/gone && (/tmp/gone 98765 &) ; rm /tmp/gone; sleep 98765 &",
        "sleep 98765 & until grep -qx sleep /proc/$!/comm; do :; done; kill -STOP $!",
    ],
)
async def test_whatever_runs_is_dead(sandbox, left_behind):
    await start(sandbox, left_behind, sleeping=1)
    assert await kill_agent_processes(sandbox) >= 1
    assert await sleepers(sandbox) == 0
    assert (await sandbox.exec("echo alive", timeout_sec=60)).stdout == b"alive\n"


async def test_a_process_that_keeps_forking_is_caught(sandbox):
    runner = "import os, time\nwhile True:\n    if os.fork(): os._exit(0)\n    time.sleep(0.002)\n"
    await sandbox.exec(["sh", "-c", 'python3 -c "$1" >/dev/null 2>&1 &', "sh", runner], timeout_sec=60)
    await kill_agent_processes(sandbox)
    left = await sandbox.exec("cat /proc/[0-9]*/cmdline | grep -ac '[o]s.fork'", timeout_sec=60)
    assert left.stdout == b"0\n"


async def test_nothing_to_kill_is_none_killed(sandbox):
    assert await kill_agent_processes(sandbox) == 0


async def test_a_tag_selects_its_processes_and_all_below(sandbox):
    await start(sandbox, "(sleep 98765 &)", sleeping=1)
    await start(sandbox, "(env -u MARK sh -c 'sleep 98765; :' & sleep 98765 &)", sleeping=3, env={"MARK": "x1"})
    await start(sandbox, "(sh -c 'env -u MARK sleep 98765; :' &)", sleeping=4, env={"MARK": "x2"})
    assert await kill_tagged(sandbox, "MARK=x2") == 2
    assert await sleepers(sandbox) == 3
