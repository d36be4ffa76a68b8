"""Settings of the Daytona backend."""

from __future__ import annotations

from pydantic import Field, SecretStr

from agentrl.api import PluginSettings


class DaytonaSettings(PluginSettings):
    """Whose account pays for Daytona machines, where they run, and what they are made from."""

    api_key: SecretStr = Field(
        SecretStr(""), validation_alias="DAYTONA_API_KEY", description="API key of the Daytona account"
    )
    jwt_token: SecretStr = Field(
        SecretStr(""),
        validation_alias="DAYTONA_JWT_TOKEN",
        description="Token instead of an API key; needs DAYTONA_ORGANIZATION_ID",
    )
    organization_id: str = Field(
        "",
        validation_alias="DAYTONA_ORGANIZATION_ID",
        description="Organisation that a token acts for; an API key belongs to one already",
    )
    api_url: str = Field(
        "https://app.daytona.io/api", validation_alias="DAYTONA_API_URL", description="URL of the Daytona API"
    )
    target: str = Field(
        "", validation_alias="DAYTONA_TARGET", description="Region of Daytona machines (default: the organisation's)"
    )
    image: str = Field(
        "",
        validation_alias="SWE_DAYTONA_IMAGE",
        description="Image, or snapshot:NAME, of Daytona machines whose task names none (default: the organisation's default snapshot)",
    )
    public_host: str = Field(
        "",
        validation_alias="ADAPTER_PUBLIC_HOST",
        description="Host name under which remote sandboxes reach the gateway",
    )
    user: str = Field(
        "root",
        validation_alias="SWE_DAYTONA_USER",
        description="The one user of a Daytona machine; empty: the image's own",
    )
    snapshot_images: bool = Field(
        False,
        validation_alias="SWE_DAYTONA_SNAPSHOT_IMAGES",
        description="Keep each task image as a Daytona snapshot: faster starts, one snapshot of the organisation's quota per image",
    )
    auto_stop_min: int = Field(
        15,
        ge=1,
        validation_alias="SWE_DAYTONA_AUTO_STOP_MIN",
        description="Minutes after which a Daytona machine that nobody refreshes is deleted",
    )
    boot_timeout_sec: float = Field(
        300.0,
        gt=0,
        validation_alias="SWE_DAYTONA_BOOT_TIMEOUT_SEC",
        description="Seconds that a Daytona machine may take to start, pulling its image included",
    )
    request_sec: float = Field(
        60.0,
        gt=0,
        validation_alias="SWE_DAYTONA_REQUEST_SEC",
        description="Seconds that a request to Daytona may take; commands and files take theirs on top",
    )
