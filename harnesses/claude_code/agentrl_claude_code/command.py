"""How the program is called: its arguments and its environment.

Nothing secret and nothing long is an argument: the session's key is in the environment, the problem comes by standard input.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agentrl.api import HarnessJob
from agentrl_claude_code.program import PROGRAM
from agentrl_claude_code.settings import ClaudeCodeSettings

CONFIG_DIR = "/tmp/claude-code"
"""Where the program keeps its own files: outside of any repository, and the model is shown it, so not a random name."""
_SETTINGS = '{"attribution": {"commit": "", "pr": ""}}'
PATIENCE_SEC = 60.0
"""How much longer than a turn may take the program waits for one, so that it is the gateway that gives up."""
_UNASKED = 20_000
"""Tokens of its window that the program sets aside before it takes a percentage."""
_STREAM = ("--output-format", "stream-json", "--verbose", "--no-session-persistence")
_QUIET = {
    # It never calls anybody but the gateway.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # What would change from request to request without meaning anything, or tools in the middle of a conversation.
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "DISABLE_PROMPT_CACHING": "1",
    "ENABLE_TOOL_SEARCH": "0",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # Reasoning is the model's own affair: what it thinks is passed on and echoed in any case.
    "MAX_THINKING_TOKENS": "0",
    # Sub-agents and commands end before their caller goes on.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # Root may skip permissions in a sandbox only.
    "IS_SANDBOX": "1",
}
_MODEL_NAMES = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)


def arguments(settings: ClaudeCodeSettings, job: HarnessJob) -> Sequence[str]:
    """The command line; the problem comes by standard input."""
    turns = ("--max-turns", str(job.max_turns)) if job.max_turns else ()
    system = ("--system-prompt", settings.system_prompt) if settings.system_prompt else ()
    theirs = () if settings.customizations else ("--safe-mode",)
    tools = ("--tools", ",".join(name.strip() for name in settings.tools.split(",")))
    limits = ("--dangerously-skip-permissions", "--disable-slash-commands", "--strict-mcp-config", *theirs)
    session = ("--session-id", str(uuid.uuid4()), "--settings", _SETTINGS)
    return (PROGRAM, "-p", *_STREAM, *limits, *turns, *system, *tools, *session)


def environment(settings: ClaudeCodeSettings, job: HarnessJob) -> dict[str, str]:
    """The environment, the session's key in it."""
    return {
        **_QUIET,
        **dict.fromkeys(_MODEL_NAMES, job.model),
        **_compaction(settings, job),
        "ANTHROPIC_BASE_URL": job.base_url,
        "ANTHROPIC_API_KEY": job.api_key,
        "CLAUDE_CONFIG_DIR": CONFIG_DIR,
        **({"CLAUDE_CODE_SIMPLE": "1"} if settings.simple else {}),
        "CLAUDE_CODE_MAX_RETRIES": str(settings.retries),
        # The gateway caps each turn; a cap of the client's can only be in its way.
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(job.context_tokens),
        "API_TIMEOUT_MS": str(int((job.turn_timeout_sec + PATIENCE_SEC) * 1000)),
    }


def _compaction(settings: ClaudeCodeSettings, job: HarnessJob) -> dict[str, str]:
    """Off: it believes in a window without end, and the gateway ends the conversation. On: at a share of the real window."""
    if not settings.compact_percent:
        return {"DISABLE_COMPACT": "1", "DISABLE_AUTO_COMPACT": "1"}
    return {
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(job.context_tokens + _UNASKED),
        "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": str(settings.compact_percent),
    }
