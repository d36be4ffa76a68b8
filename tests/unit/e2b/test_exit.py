"""A process may end right after its last request: the SDK's own threads must not take it down."""

import asyncio
import sys

from agentrl.settings import environment

LAST_REQUESTS = """
import asyncio
from agentrl_e2b.backend import E2BBackend
from agentrl_e2b.settings import E2BSettings

async def main():
    backend = E2BBackend(E2BSettings())
    assert await asyncio.gather(*(backend.list({"x": "1"}) for _ in range(8))) == [[]] * 8

asyncio.run(main())
"""


async def test_the_interpreter_ends_cleanly(server):
    """About one in seven of them died without the pause: the more, the surer this test."""
    process_environment = {**environment(), **server.environment()}
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", LAST_REQUESTS, env=process_environment, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(4)
    ]
    ends = await asyncio.gather(*(child.communicate() for child in children))
    assert [child.returncode for child in children] == [0] * 4, ends


async def test_choosing_it_loads_no_sdk():
    script = "import sys; from agentrl_e2b.backend import E2BBackend as B; from agentrl_e2b.settings import E2BSettings as S; "
    script += "b = B(S(api_key='x')); b.capabilities; assert not {'e2b', 'httpx'} & set(sys.modules)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await child.wait() == 0
