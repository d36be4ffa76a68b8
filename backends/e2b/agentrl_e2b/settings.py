"""Settings of the E2B backend. Variables that start with ``E2B_`` are those of E2B's own SDK."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from agentrl.api import PluginSettings

Seconds = Annotated[float, Field(gt=0)]


class E2BSettings(PluginSettings):
    """Whose cloud, with which key, and what its machines are made of."""

    api_key: SecretStr = Field(SecretStr(""), validation_alias="E2B_API_KEY", description="Key of the E2B account")
    domain: str = Field(
        "", validation_alias="E2B_DOMAIN", description="Domain of the E2B cloud (default: that of the SDK, e2b.app)"
    )
    api_url: str = Field(
        "", validation_alias="E2B_API_URL", description="Address of the API of a self-hosted gateway that speaks E2B"
    )
    sandbox_url: str = Field(
        "", validation_alias="E2B_SANDBOX_URL", description="Address of all machines of a self-hosted gateway"
    )
    http_version: Literal["2", "1.1"] = Field(
        "2", validation_alias="E2B_HTTP_VERSION", description="HTTP version towards E2B; 1.1 where a proxy mishandles 2"
    )
    public_host: str = Field(
        "",
        validation_alias="ADAPTER_PUBLIC_HOST",
        description="Host name under which remote sandboxes reach the gateway",
    )
    template: str = Field(
        "base", validation_alias="SWE_E2B_TEMPLATE", description="Template for tasks that name no image"
    )
    image_metadata_key: str = Field(
        "",
        validation_alias="SWE_SANDBOX_IMAGE_METADATA_KEY",
        description="Send a task's image in this metadata field instead of building templates, for gateways that run images",
    )
    user: str = Field(
        "root", validation_alias="SWE_E2B_USER", description="User of commands that name none; empty: the template's"
    )
    cwd: str = Field(
        "", validation_alias="SWE_E2B_CWD", description="Folder of commands that name none; empty: their user's home"
    )
    longest_life_sec: Annotated[int, Field(ge=60)] = Field(
        3600,
        validation_alias="SWE_E2B_LONGEST_LIFE",
        description="Seconds that a machine is booked for at once (an hour is the most for Hobby accounts); renewed while in use",
    )
    create_sec: Seconds = Field(
        120.0, validation_alias="SWE_E2B_CREATE_TIMEOUT", description="Seconds that E2B may take to create a machine"
    )
    request_sec: Seconds = Field(
        60.0, validation_alias="SWE_E2B_REQUEST_TIMEOUT", description="Seconds that any other request to E2B may take"
    )
    build_sec: Seconds = Field(
        1800.0, validation_alias="SWE_E2B_BUILD_TIMEOUT", description="Seconds that E2B may take to build a template"
    )
