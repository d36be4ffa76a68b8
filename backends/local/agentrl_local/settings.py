"""Settings of the local backend."""

from __future__ import annotations

from pydantic import Field

from agentrl.api import PluginSettings


class LocalSettings(PluginSettings):
    """Where local sandboxes keep their files, and how much of the host they may see."""

    state_dir: str = Field(
        "",
        validation_alias="SWE_LOCAL_STATE_DIR",
        description="Folder for the files of local sandboxes, on a disk file system (default: agentrl-local-<uid> in the temp folder)",
    )
    folders: str = Field(
        "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /opt",
        validation_alias="SWE_LOCAL_FOLDERS",
        description="Top-level folders of the host that local sandboxes get a private copy-on-write view of",
    )
    ignore_image: bool = Field(
        False,
        validation_alias="SWE_LOCAL_IGNORE_IMAGE",
        description="Run tasks that name a container image on the host's own file system view instead",
    )
    unconfined: bool = Field(
        False,
        validation_alias="SWE_LOCAL_UNCONFINED",
        description="Without user namespaces, run commands as plain processes of this host: NO isolation at all",
    )
