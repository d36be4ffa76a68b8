"""Typed settings from environment variables: the only module that reads the environment.

A setting is a field of a frozen class, bound to one variable by ``validation_alias``. Core's own are in
:class:`Settings`; a plugin derives its class from :class:`PluginSettings`. An empty variable is an unset one. A secret may lie
in a file instead, which the variable's name with ``_FILE`` behind it names; only that path ever travels to other machines.

Not here: whether the chosen values fit each other (:mod:`agentrl.rollout.plan`) and who offers what (:mod:`agentrl.registry`).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from agentrl.errors import SettingsError

Source = Literal["command line", "environment", "default"]
CHECKED = ("SWE_", "AGENTRL_")
"""Every variable that starts so must be a setting."""
OF_A_MACHINE = ("PATH", "HOME", "TMPDIR", "USER")
"""Variables that a plugin may read, and that mean something else on every machine."""


def environment() -> dict[str, str]:
    """A copy of the process environment, for those who start subprocesses."""
    return dict(os.environ)  # noqa: TID251


# ------------------------------------------------------------------------------------------------ one variable


@dataclass(frozen=True, slots=True)
class Variable:
    """One setting as people see it. ``default`` is spelled as one would set it. ``secret`` values are never shown or forwarded."""

    name: str
    field: str
    default: str
    description: str
    secret: bool

    @property
    def spellings(self) -> tuple[str, ...]:
        """The variables that set it: its name and, for a secret, the one that names a file with the value."""
        return (self.name, f"{self.name}_FILE") if self.secret else (self.name,)

    def given(self, values: Mapping[str, str]) -> str:
        """Its value among ``values``, or from the file that they name; empty: unset. Raises: SettingsError."""
        value = values.get(self.name, "")
        path = values.get(self.spellings[-1], "") if self.secret else ""
        if not path:
            return value
        if value:
            raise SettingsError(f"{self.name} and {self.name}_FILE are both set: one is enough")
        try:
            return Path(path).expanduser().read_text().strip()
        except FileNotFoundError:
            raise SettingsError(f"{self.name}_FILE={path}: no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.name}_FILE={path}: cannot be read: {type(error).__name__}") from None


def variables(cls: type[PluginSettings]) -> tuple[Variable, ...]:
    """The variables of a settings class, in order. Raises: SettingsError for a field without variable or description."""
    return tuple(_variable(cls, name, info) for name, info in cls.model_fields.items())


def _variable(cls: type[PluginSettings], name: str, info: FieldInfo) -> Variable:
    alias = info.validation_alias
    if not isinstance(alias, str) or not info.description:
        raise SettingsError(
            f'{cls.__module__}.{cls.__name__}.{name} needs Field(…, validation_alias="VARIABLE", description="…")'
        )
    named_so = alias.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")) and not alias.endswith("_METADATA_KEY")
    secret = "SecretStr" in str(info.annotation) or named_so
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    return Variable(alias, name, "" if secret else spelled(default), info.description, secret)


def spelled(value: object) -> str:
    """``value`` as one would write it into the variable; a secret only as whether it is there."""
    match value:
        case None:
            return ""
        case SecretStr():
            return "(set)" if value.get_secret_value() else ""
        case bool():
            return str(value).lower()
        case tuple() | list() | frozenset():
            return ",".join(map(str, value))
        case Path() if value.is_relative_to(Path.home()):
            return f"~/{value.relative_to(Path.home())}"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean X?``, or nothing when no known name is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f" Did you mean {close[0]}?" if close else ""


# ------------------------------------------------------------------------------------------------- the classes


class PluginSettings(BaseSettings):
    """Base of a plugin's settings: one frozen field per variable, named by ``validation_alias``, with a description.

    Empty means unset. ``Class()`` reads the process environment, keywords by field name win. The module that defines one
    must be cheap to import (no SDK). Credentials are :class:`pydantic.SecretStr`.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keywords, then exactly the named variables."""
        return init_settings, _Environment(settings_cls)


class _Environment(PydanticBaseSettingsSource):
    """Only variables named by an alias, as plain strings. The stock source also tries the field's own name, so that a
    field ``user`` would be filled by ``USER``."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        cls = self.settings_cls
        assert issubclass(cls, PluginSettings), "only such classes have this source"
        variable = _variable(cls, field_name, field)
        return variable.given(os.environ) or None, variable.name, False  # noqa: TID251

    def __call__(self) -> dict[str, Any]:
        found = (self.get_field_value(info, name) for name, info in self.settings_cls.model_fields.items())
        return {alias: value for value, alias, _ in found if value is not None}


def _split(value: object) -> object:
    return tuple(part for part in map(str.strip, value.split(",")) if part) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Ports:
    """A port, or a range of them of which each process takes the first free one. 0: any free port."""

    first: int = 0
    last: int = 0

    @property
    def numbers(self) -> range:
        """The ports in the order in which they are tried."""
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def _ports(value: object) -> Ports:
    if isinstance(value, Ports):
        return value
    first, dash, last = str(value).partition("-")
    if not first.strip().isdecimal() or not (last if dash else "0").strip().isdecimal():
        raise ValueError("should be a port or a range of ports, such as 18000-18007")
    ports = Ports(int(first), int(last) if dash else int(first))
    if not (ports.first == ports.last == 0 or 0 < ports.first <= ports.last <= 65535):
        raise ValueError("should be ports from 1 to 65535, the lower one first")
    return ports


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A comma-separated list."""

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Limit = Annotated[int, Field(ge=0)]


def _from(variable: str, default: Any, description: str) -> Any:
    return Field(default, validation_alias=variable, description=description)


class Settings(PluginSettings):
    """Core's own settings."""

    # What is combined.
    sandbox: str = _from("SWE_SANDBOX", "local", "Sandbox backend that machines come from")
    agent: str = _from("SWE_AGENT", "mini-swe", "Harness: the agent program that works in a sandbox")
    train_protocol: str = _from(
        "SWE_TRAIN_PROTOCOL", "scaleswe", "Protocol (task format and grader) of the training tasks"
    )
    eval_protocol: str = _from(
        "SWE_EVAL_PROTOCOL", "", "Protocol of the evaluation tasks; empty: the training protocol"
    )
    train_data: Path | None = _from("SWE_TRAIN_DATA", None, "JSONL file with one training task a line")
    eval_data: Path | None = _from("SWE_EVAL_DATA", None, "JSONL file with one evaluation task a line")
    quarantine: Path | None = _from(
        "SWE_QUARANTINE",
        None,
        "File of unfit tasks that `agentrl validate` writes and training leaves out; empty: the data file's name with "
        "`.quarantine.json`",
    )
    engine: str = _from(
        "AGENTRL_ENGINE",
        "local",
        "Engine to start (`local`, `sglang`, …), or the http:// URL of a running one; for evaluation also "
        "`openai:URL` or `anthropic:URL` of a model behind that API",
    )
    trainer: str = _from("AGENTRL_TRAINER", "megatron", "Training loop")
    middleware: Names = _from(
        "AGENTRL_MIDDLEWARE", (), "Middleware around each turn, outermost first, separated by commas"
    )
    model: Path | None = _from(
        "AGENTRL_MODEL", None, "Hugging Face folder of the model: config, tokenizer, safetensors"
    )

    # A model behind somebody else's API, for evaluation.
    remote_model: str = _from(
        "AGENTRL_REMOTE_MODEL", "", "Name of the model to ask an `openai:` or `anthropic:` engine for"
    )
    remote_api_key: SecretStr | None = _from("AGENTRL_REMOTE_API_KEY", None, "Key of that API")

    # How long things may take, from the inside out.
    turn_timeout_sec: Seconds = _from("SWE_TURN_TIMEOUT_SEC", 600.0, "Longest time of one turn")
    agent_time_budget_sec: Seconds = _from(
        "SWE_AGENT_TIME_BUDGET_SEC", 1800.0, "Longest time the agent may work on a task"
    )
    eval_timeout_sec: Seconds = _from("SWE_EVAL_TIMEOUT_SEC", 900.0, "Longest time the tests of a grader may run")
    rollout_guard_sec: Seconds = _from("SWE_ROLLOUT_GUARD_SEC", 3600.0, "Longest time of a rollout, boot to grade")
    sandbox_lifetime_sec: Seconds = _from(
        "SWE_SANDBOX_LIFETIME_SEC",
        4500.0,
        "Time from the start of a rollout at which every sandbox of it dies by itself, whatever became of us",
    )

    # How much of everything.
    boot_concurrency: Count = _from(
        "SWE_BOOT_CONCURRENCY",
        8,
        "Sandboxes of one account that boot at the same time, over all processes on this host",
    )
    boots_per_sec: Annotated[float, Field(ge=0)] = _from(
        "SWE_BOOTS_PER_SEC", 0.0, "Sandboxes of one account that may be asked for each second; 0: no limit"
    )
    max_sandboxes: Limit = _from("SWE_MAX_SANDBOXES", 0, "Sandboxes of one account that exist at once; 0: no limit")
    boot_retries: Limit = _from(
        "SWE_BOOT_RETRIES", 3, "Further attempts when a sandbox does not boot; being told to slow down costs none"
    )
    warm: Limit = _from(
        "AGENTRL_WARM", 0, "Sandboxes of the next tasks that are started ahead, as far as no rollout needs their place"
    )
    limits_dir: Path | None = _from(
        "AGENTRL_LIMITS_DIR",
        None,
        "Folder where the processes of one account share these limits; empty: one of this user in the temp folder",
    )
    concurrency: Count = _from("SWE_CONCURRENCY", 32, "Rollouts at the same time")
    max_turns: Limit = _from("SWE_MAX_TURNS", 50, "Turns of a rollout; 0: no limit")
    max_rollout_tokens: Limit = _from("SWE_MAX_ROLLOUT_TOKENS", 0, "Sampled tokens of a rollout; 0: no limit")
    max_new_tokens: Count = _from("SWE_MAX_NEW_TOKENS", 4096, "Sampled tokens of one turn")
    context_tokens: Count = _from("SWE_CONTEXT_TOKENS", 32768, "Tokens of prompt and reply together")
    max_sample_tokens: Limit = _from("SWE_MAX_SAMPLE_TOKENS", 0, "Tokens of one training sample; 0: SWE_CONTEXT_TOKENS")

    # Where agents reach the gateway.
    bind_host: str = _from("ADAPTER_BIND_HOST", "127.0.0.1", "Address that the gateway listens on")
    port: Annotated[Ports, PlainValidator(_ports)] = _from(
        "ADAPTER_PORT", Ports(), "Port of the gateway, or a range (`18000-18007`) whose first free one it takes; 0: any"
    )
    public_host: str = _from("ADAPTER_PUBLIC_HOST", "", "Host name under which remote sandboxes reach the gateway")
    reach: Literal["auto", "public", "relay"] = _from(
        "AGENTRL_REACH",
        "auto",
        "How agents inside sandboxes reach the gateway: at `ADAPTER_PUBLIC_HOST` (`public`), through a channel that we open into "
        "the sandbox (`relay`), or directly where the backend can, else at the public host if there is one, else by relay",
    )

    # The run.
    iterations: Limit = _from("AGENTRL_ITERATIONS", 0, "Iterations to train; 0: until stopped")
    groups: Count = _from("AGENTRL_GROUPS", 8, "Groups (tasks) of one iteration")
    group_size: Count = _from("AGENTRL_GROUP_SIZE", 8, "Rollouts of one group")
    temperature: Annotated[float, Field(gt=0)] = _from("AGENTRL_TEMPERATURE", 1.0, "Sampling temperature")
    top_p: Annotated[float, Field(gt=0, le=1)] = _from("AGENTRL_TOP_P", 1.0, "Nucleus sampling; 1: off")
    top_k: Annotated[int, Field(ge=-1)] = _from("AGENTRL_TOP_K", -1, "Top-k sampling; -1: off")
    seed: Limit = _from("AGENTRL_SEED", 0, "Seed of task order and sampling")
    levels: Names = _from("AGENTRL_LEVELS", (), "Train on tasks of these levels only, separated by commas; empty: all")
    reward: Literal["solved", "partial"] = _from(
        "AGENTRL_REWARD", "solved", "The grader's verdict, or `partial`: the share of the required tests that pass"
    )
    max_aborted_share: Annotated[float, Field(ge=0, le=1)] = _from(
        "AGENTRL_MAX_ABORTED_SHARE", 0.5, "Share of aborted rollouts above which an iteration fails"
    )
    checkpoint_every: Count = _from("AGENTRL_CHECKPOINT_EVERY", 5, "Iterations from checkpoint to checkpoint")
    renderer: str = _from("AGENTRL_RENDERER", "auto", "Chat renderer; `auto`: by the model's family")
    dtype: Literal["auto", "float32", "bfloat16"] = _from("AGENTRL_DTYPE", "auto", "Number format of weights")
    run_dir: Path = _from(
        "AGENTRL_RUN_DIR", Path("runs"), "Folder that receives journals, metrics, checkpoints and logs"
    )

    # Where parts come from.
    plugins: Names = _from("AGENTRL_PLUGINS", (), "Modules to load as plugins, besides the installed ones")
    disable_plugins: Names = _from(
        "AGENTRL_DISABLE_PLUGINS", (), "Plugins not to load, by name, module or distribution"
    )


# --------------------------------------------------------------------------------------------------- resolving

S = TypeVar("S", bound=PluginSettings)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with their origin. ``values``: the variables that are set, as strings; ``overridden``: by the command line."""

    settings: Settings
    values: Mapping[str, str] = field(repr=False)
    overridden: frozenset[str] = frozenset()

    def source(self, variable: str) -> Source:
        """Where the value of ``variable`` comes from."""
        if variable in self.overridden:
            return "command line"
        return "environment" if variable in self.values else "default"

    def read(self, cls: type[S]) -> S:
        """An instance of a plugin's class from the same variables. Raises: SettingsError."""
        return _read(cls, self.values)


def resolve(environ: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None) -> Resolved:
    """Core's settings from ``environ`` (None: the process environment) with ``overrides`` (variable → value) on top.

    Raises: SettingsError, one line for each value that is not what its setting expects.
    """
    merged = {**(environment() if environ is None else environ), **(overrides or {})}
    values = {name: value for name, value in merged.items() if value}
    return Resolved(_read(Settings, values), values, frozenset(overrides or {}) & values.keys())


def _read(cls: type[S], values: Mapping[str, str]) -> S:
    known = {variable.name: variable for variable in variables(cls)}
    instance = cls.__new__(cls)
    try:
        # Past BaseSettings.__init__, which would add the process environment.
        BaseModel.__init__(instance, **{name: given for name in known if (given := known[name].given(values))})
    except ValidationError as error:
        lines = (_complaint(known, values, problem["loc"], problem["msg"]) for problem in error.errors())
        raise SettingsError("\n".join(lines)) from error
    return instance


def _complaint(
    known: Mapping[str, Variable], values: Mapping[str, str], loc: tuple[int | str, ...], message: str
) -> str:
    variable = known.get(str(loc[0]) if loc else "")
    expected = message.removeprefix("Value error, ").replace("Input should", "should", 1)
    if variable is None:
        return expected
    if not values.keys() & set(variable.spellings):
        return f"{variable.name} must be set: {variable.description}"
    shown = "(hidden)" if variable.secret else repr(values[variable.name])
    return f"{variable.name}={shown}: {expected} ({variable.description})"


def unknown_variables(names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """One line for each ``SWE_*`` or ``AGENTRL_*`` name that no setting has."""
    allowed = set(known)
    strangers = sorted(n for n in names if n.startswith(CHECKED) and n not in allowed)
    return tuple(f"{name} is not a setting.{did_you_mean(name, sorted(allowed))}" for name in strangers)


def forwarded(classes: Iterable[type[PluginSettings]]) -> tuple[str, ...]:
    """The variables that a remote worker needs for these classes and core's own. Of a secret only the name of its file's
    variable: a value travels with no job description. Not what belongs to a machine (``PATH``)."""
    everyone: tuple[type[PluginSettings], ...] = (Settings, *classes)
    names = dict.fromkeys(v.spellings[-1] for cls in everyone for v in variables(cls))
    return tuple(name for name in names if name not in OF_A_MACHINE)
