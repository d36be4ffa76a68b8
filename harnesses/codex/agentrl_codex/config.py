"""How the program is called and configured.

It keeps its files in a home of its own and is told the session's key by environment; the agent's commands get neither: their
``HOME`` is the sandbox's, and the key is taken out of their environment.

Seen in requests of 0.171.0: ``input`` only grows, nothing else changes from turn to turn; ids are echoed; reasoning comes
back word for word; results of parallel calls come in the order of the calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentrl.api import HarnessJob
from agentrl_codex.program import PROGRAM
from agentrl_codex.settings import CodexSettings

KEY = "AGENTRL_CODEX_KEY"
"""The variable with the session's key."""
_PROVIDER = "agentrl"
_ENDLESS = 1_000_000_000
"""Tokens of a window that is never full: the gateway ends the conversation, Codex never summarises or drops anything."""
IDLE_SLACK_SEC = 60.0
# Everything that talks to other servers, waits for a person, starts other agents or varies with the machine.
_OFF = (
    "apps", "goals", "guardian_approval", "hooks", "image_generation", "plugin_sharing", "plugins", "remote_plugin",
    "shell_snapshot", "skill_search", "tool_suggest", "view_image",
)  # fmt: skip


def script(home: str) -> str:
    """The shell command; the problem comes by standard input. ``home``: where config, problem and Codex's own files are."""
    flags = "--json --ephemeral --skip-git-repo-check --ignore-rules --dangerously-bypass-approvals-and-sandbox"
    theirs = "shell_environment_policy.set={HOME='$HOME'}"
    command = f'{PROGRAM} exec {flags} -c "{theirs}" - < {home}/problem'
    return f"HOME={home} CODEX_HOME={home}/codex exec {command}"


def config(settings: CodexSettings, job: HarnessJob, home: str) -> str:
    """``config.toml``."""
    tables: dict[str, Mapping[str, Any]] = {
        "": {
            "model": job.model,
            "model_provider": _PROVIDER,
            "model_context_window": _ENDLESS,
            "model_auto_compact_token_limit": _ENDLESS,
            "check_for_update_on_startup": False,
            "web_search": "disabled",
            # A login shell would forget the path that the sandbox was given.
            "allow_login_shell": False,
            **({"model_instructions_file": f"{home}/instructions"} if settings.instructions else {}),
            **({} if settings.customizations else {"project_doc_max_bytes": 0}),
        },
        "analytics": {"enabled": False},
        "feedback": {"enabled": False},
        "history": {"persistence": "none"},
        "otel": {"exporter": "none"},
        "agents": {"enabled": False},
        "skills": {"include_instructions": False},
        "skills.bundled": {"enabled": False},
        "tools.experimental_request_user_input": {"enabled": False},
        "shell_environment_policy": {"exclude": [KEY, "CODEX_HOME"]},
        "features": dict.fromkeys(_OFF, False),
        f"model_providers.{_PROVIDER}": _provider(settings, job),
    }
    return "\n".join(_table(name, values) for name, values in tables.items())


def _provider(settings: CodexSettings, job: HarnessJob) -> Mapping[str, Any]:
    return {
        "name": _PROVIDER,
        "base_url": f"{job.base_url}/v1",
        "env_key": KEY,
        "wire_api": "responses",
        "supports_websockets": False,
        "request_max_retries": settings.retries,
        "stream_max_retries": min(settings.retries, 2),
        # It does not count the gateway's pings as signs of life.
        "stream_idle_timeout_ms": int((job.turn_timeout_sec + IDLE_SLACK_SEC) * 1000),
    }


def _table(name: str, values: Mapping[str, Any]) -> str:
    head = f"[{name}]\n" if name else ""
    return head + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: bool | int | str | list[str]) -> str:
    """JSON, which TOML has the values of; it only wants one more character escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
