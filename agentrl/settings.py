"""Typed settings from environment variables: the only module that reads the environment."""

from __future__ import annotations

from pydantic_settings import BaseSettings, SettingsConfigDict


class PluginSettings(BaseSettings):
    """Base of a plugin's settings: one frozen field per variable, named by ``validation_alias``, with a description.

    Empty means unset. The module that defines one must be cheap to import (no SDK).
    """

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True)
