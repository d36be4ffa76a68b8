"""One whole rollout of an example task, in this process: every part is chosen by variables, the model says what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from repair import bash, saying
from tiny_model import Speller, tiny_model

from agentrl.plugins import load_plugins
from agentrl.rollout.assembly import assemble
from agentrl.rollout.journal import encode
from agentrl.rollout.one import RolloutId
from agentrl.rollout.plan import make_plan
from agentrl.rollout.verify import verify
from agentrl.settings import resolve
from agentrl.testing.scripted_engine import ScriptedEngine

EXAMPLES = Path(__file__).parents[2] / "examples/swe/tasks.jsonl"
TASK = "backup-permission"
REPLIES = (
    bash("pwd; git status --short; git log --oneline | wc -l; cat missing; tools/backup.sh a"),
    "Words without a command.",
    bash("python3 -I tests/test_backup.py 2>&1 | tail -n 1; printf '\\303\\244\\377\\001'; exit 7"),
    bash("head -c 30000 /dev/zero | tr '\\0' x; echo err >&2; kill -9 $$"),
    bash("chmod +x tools/backup.sh; printf 'left\\r\\n' > notes.bin; git status --short"),
    bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
)
"""Exit codes, a signal, both streams, bytes that are no text, more output than is shown, a change of mode and a new file."""


def roomy_model(folder: Path) -> Path:
    """The tiny model with room for a whole conversation; its weights are not used."""
    tiny_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 16}))
    return folder


async def roll(
    folder: Path,
    model_dir: Path,
    variables: Mapping[str, str],
    *,
    replies: Sequence[str] = REPLIES,
    before_reply: Callable[[int], None] = lambda _turn: None,
) -> dict[str, Any]:
    """The line of the journal. ``variables`` choose the sandbox; ``before_reply`` is told which reply of the model is next."""
    lines = EXAMPLES.read_text().splitlines()
    data = folder / "tasks.jsonl"
    data.write_text("\n".join(line for line in lines if json.loads(line)["metadata"]["instance_id"] == TASK))
    say = saying(Speller(model_dir), replies)

    def script(prompt: list[int], number: int) -> list[int]:
        before_reply(number)
        return say(prompt, number)

    async with ScriptedEngine(script) as model:
        chosen = {
            "SWE_AGENT": "mini-swe",
            "SWE_MINI_DEMONSTRATION": "false",
            "SWE_TRAIN_DATA": str(data),
            "SWE_CONTEXT_TOKENS": "60000",
            "SWE_MAX_TURNS": "10",
            "SWE_MAX_NEW_TOKENS": "400",
            "AGENTRL_MODEL": str(model_dir),
            "AGENTRL_ENGINE": model.url,
            "AGENTRL_RUN_DIR": str(folder / "runs"),
        }
        resolved = resolve({}, {**chosen, **variables})
        plan = make_plan(resolved, load_plugins(resolved), purpose="rollout").require()
        async with assemble(plan, folder / "runs" / "run", tell=lambda _: None) as assembly:
            rollout = await assembly.run_one(plan.tasks[0], RolloutId(0, 0, 0), 1)
    verify([rollout])
    return dict(json.loads(json.dumps(encode(rollout))))
