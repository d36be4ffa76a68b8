"""Settings of the SGLang launcher; cheap to import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from agentrl.api import PluginSettings

UserPath = Annotated[Path, AfterValidator(Path.expanduser)]


class SGLangSettings(PluginSettings):
    """Where SGLang lives and how it is started."""

    venv: UserPath | None = Field(
        default=None,
        validation_alias="AGENTRL_SGLANG_VENV",
        description="Virtual environment that holds SGLang. One that exists is used as it is; otherwise SGLang is installed "
        "there on first use. Unset: a folder in AGENTRL_CACHE_DIR.",
    )
    cache_dir: UserPath = Field(
        default=Path.home() / ".cache" / "agentrl",
        validation_alias="AGENTRL_CACHE_DIR",
        description="Folder for things that are made once and kept.",
    )
    flags: str = Field(
        default="",
        validation_alias="AGENTRL_SGLANG_FLAGS",
        description="More flags for sglang.launch_server, as in a shell, such as '--tp 2'. They come last and win.",
    )
    kv_tokens: int = Field(
        default=32768,
        ge=1024,
        validation_alias="AGENTRL_SGLANG_KV_TOKENS",
        description="Tokens that a server on a CPU keeps in memory, over all requests. On GPUs SGLang decides.",
    )
    threads: int = Field(
        default=2, ge=1, validation_alias="AGENTRL_SGLANG_THREADS", description="CPU threads of a server on a CPU."
    )
    start_sec: float = Field(
        default=900.0,
        gt=0,
        validation_alias="AGENTRL_SGLANG_START_SEC",
        description="Seconds that the server may take to load its model, installation not counted.",
    )
