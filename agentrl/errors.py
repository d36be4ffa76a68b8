"""The exceptions of agentrl, and the error model behind them.

The model in five lines:

1. What the policy did wrong is data, never an exception: a failing command, a wrong patch, a malformed tool call.
2. What the user did wrong is a :class:`UsageError`: raised before anything is paid for, with what to do next.
3. What the world did wrong has a class that decides about retries (:class:`SandboxError` and its kinds,
   :class:`EngineError`), and one owner of those retries: the lease for machines, nobody for a generation that may have run.
4. What we cannot judge is a :class:`GraderError`: no grade, no reward.
5. Three boundaries turn exceptions into outcomes and catch everything: the rollout, plugin events, the gateway's turn.

A message names the cause and the remedy; the original exception is always chained.
"""

from __future__ import annotations

from collections.abc import Sequence


class AgentrlError(Exception):
    """Root of everything raised on purpose."""


# ------------------------------------------------------------------------------------------------ the user's


class UsageError(AgentrlError):
    """The user's settings, files or names are wrong; the message says what to do."""


class SettingsError(UsageError):
    """A setting is unknown, malformed or contradicts another."""


class PlanError(UsageError):
    """The chosen parts cannot work together. ``problems``: one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class PluginError(UsageError):
    """A plugin is unknown, broken, or offers a name that another one offers too."""


class RowError(UsageError):
    """A row of a data file cannot become a task; says the row and the field."""


# --------------------------------------------------------------------------------------------------- sandbox


class SandboxError(AgentrlError):
    """A machine or its provider failed, for a reason nobody could classify: not retried once the request left."""


class SandboxTransient(SandboxError):
    """It may work if asked again (5xx, reset connection, slow start)."""


class SandboxThrottled(SandboxTransient):
    """The provider asks to slow down. ``retry_after_sec``: its wish, or None."""

    def __init__(self, message: str, retry_after_sec: float | None = None) -> None:
        self.retry_after_sec = retry_after_sec
        super().__init__(message)


class SandboxGone(SandboxError):
    """The machine does not exist any more; whatever ran in it is lost."""


class SandboxRefused(SandboxError):
    """It will never work like this: bad credentials, bad request, quota, missing kernel feature."""


class ImageUnavailable(SandboxRefused):
    """The image cannot be found or pulled."""


class FileError(SandboxError):
    """A path inside a sandbox could not be read or written; the machine itself is fine."""


class FileMissing(FileError):
    """No such path."""


class FileIsDirectory(FileError):
    """The path is a directory."""


class FileDenied(FileError):
    """Permission denied, or not a regular file."""


# ------------------------------------------------------------------------------------------ tools over sandboxes


class PatchError(AgentrlError):
    """A patch could not be captured; never an empty patch instead."""


class PatchTooLarge(PatchError):
    """The patch exceeds the cap."""


class PatchRejected(PatchError):
    """The patch does not apply to the base; the tree was reset."""


# ------------------------------------------------------------------------------------------- engine and gateway


class EngineError(AgentrlError):
    """The engine failed or broke its protocol (missing logprobs, counts that differ)."""


class EngineUnavailable(EngineError):
    """The engine cannot be reached or is overloaded. ``arrived``: whether the request may have reached it."""

    def __init__(self, message: str, *, arrived: bool = True) -> None:
        self.arrived = arrived
        super().__init__(message)


class ContextOverflow(AgentrlError):
    """The prompt leaves no room: ``tokens`` of at most ``limit``."""

    def __init__(self, tokens: int, limit: int) -> None:
        self.tokens, self.limit = tokens, limit
        super().__init__(f"prompt is too long: {tokens} tokens > {limit} maximum")


class GatewayError(AgentrlError):
    """A request that the gateway answers with an error of the client's own API."""


class BadRequest(GatewayError):
    """The client's request is malformed or asks for something unsupported."""


class Unauthorized(GatewayError):
    """No session token, or one that was never given out."""


class SessionClosed(GatewayError):
    """The session ended; nothing is recorded any more."""


class BudgetExhausted(GatewayError):
    """A budget of the rollout ran out. ``budget``: ``turn``, ``token``, ``context`` or ``time``."""

    def __init__(self, budget: str, message: str) -> None:
        self.budget = budget
        super().__init__(message)


class TemplateError(AgentrlError):
    """The chat template cannot render this conversation."""


# ------------------------------------------------------------------------------------------- harness and grader


class HarnessError(AgentrlError):
    """The agent program itself failed (did not install, crashed): no verdict about the policy."""


class GraderError(AgentrlError):
    """The submission could not be judged."""


class TrainerError(AgentrlError):
    """The training process failed."""
