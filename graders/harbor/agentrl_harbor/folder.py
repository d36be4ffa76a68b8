"""A task directory as a task.

::

    task.toml            [task] name; [metadata] difficulty; [agent] timeout_sec; [verifier] timeout_sec, env, environment_mode;
                         [environment] docker_image, workdir, env, cpus, memory_mb, storage_mb (or memory = "2G"); artifacts
    instruction.md       what the agent is asked
    environment/Dockerfile   read unless docker_image is named; its folder is the build context
    tests/test.sh        writes /logs/verifier/reward.json or reward.txt
    solution/solve.sh    the task's own solution

What changes the meaning of a task and is not supported is an error: several steps, docker-compose.yaml, GPUs, Windows, other
users than root, an image of the verifier's own, values taken from the host's environment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.api import Layer, Resources, RowError, Task
from agentrl_harbor.dockerfile import Recipe, read_dockerfile

PROTOCOL = "harbor"
WORKDIR = "/app"
_UNITS = {"": 1, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}


def read_folder(folder: Path, *, build: bool = False) -> Task:
    """The directory as a task; ``build``: from its Dockerfile even if a ready-made image is named. Raises: RowError."""
    config = _config(folder / "task.toml")
    _refuse(folder, config)
    environment, verifier = _table(folder, config, "environment"), _table(folder, config, "verifier")
    dockerfile = folder / "environment" / "Dockerfile"
    image = environment.get("docker_image") or ""
    recipe = read_dockerfile(dockerfile) if dockerfile.is_file() and (build or not image) else Recipe(image=image)
    if not recipe.image:
        raise RowError(f"{folder}: neither docker_image in task.toml nor environment/Dockerfile")
    workdir = environment.get("workdir") or recipe.workdir or WORKDIR
    if workdir == "/" or not workdir.startswith("/"):
        raise RowError(f"{folder}: the workdir must be an absolute path below /, not {workdir!r}")
    env = {name: value for name, value in recipe.env.items() if "$" not in value}
    return Task(
        id=str(_table(folder, config, "task").get("name") or folder.name),
        protocol=PROTOCOL,
        problem=_instruction(folder / "instruction.md"),
        workdir=workdir,
        image=recipe.image,
        resources=_resources(folder, environment),
        level=str(_table(folder, config, "metadata").get("difficulty") or ""),
        metadata={
            "folder": str(folder),
            "separate": verifier.get("environment_mode", "shared") == "separate",
            "artifacts": _artifacts(folder, config),
            "verifier_sec": _seconds(folder, verifier, 600.0),
            "verifier_env": _env(folder, verifier),
            "solution_sec": _seconds(folder, _table(folder, config, "agent"), 600.0),
            "solution_env": _env(folder, _table(folder, config, "solution")),
        },
        layers=_layers(recipe),
        env={**env, **_env(folder, environment)},
    )


def _layers(recipe: Recipe) -> tuple[Layer, ...]:
    return () if recipe.layer is None else (recipe.layer,)


def _config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RowError(f"{path}: {error}") from error


def _instruction(path: Path) -> str:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RowError(f"{path}: {error}") from error
    if not text.strip():
        raise RowError(f"{path} is empty")
    return text


def _table(folder: Path, config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name, {})
    if not isinstance(value, Mapping):
        raise RowError(f"{folder}/task.toml: [{name}] must be a table")
    return value


def _refuse(folder: Path, config: Mapping[str, Any]) -> None:
    environment, verifier = _table(folder, config, "environment"), _table(folder, config, "verifier")
    agent = _table(folder, config, "agent")
    refused = {
        "[[steps]]": config.get("steps"),
        "environment/docker-compose.yaml": (folder / "environment" / "docker-compose.yaml").exists(),
        "environment.gpus": environment.get("gpus"),
        "environment.os": environment.get("os", "linux") != "linux",
        "environment.mcp_servers": environment.get("mcp_servers"),
        "environment.healthcheck": environment.get("healthcheck"),
        "verifier.environment": verifier.get("environment"),
        "verifier.collect": verifier.get("collect"),
        "verifier.user": verifier.get("user") not in (None, "root", 0, "0"),
        "agent.user": agent.get("user") not in (None, "root", 0, "0"),
    }
    if named := [name for name, there in refused.items() if there]:
        raise RowError(f"{folder}: not supported: {', '.join(named)}")


def _env(folder: Path, table: Mapping[str, Any]) -> dict[str, str]:
    env = table.get("env") or {}
    if not isinstance(env, Mapping):
        raise RowError(f"{folder}/task.toml: env must be a table")
    if fetched := [name for name, value in env.items() if "${" in str(value)]:
        raise RowError(
            f"{folder}/task.toml: {', '.join(fetched)} would come from this host's environment: not supported"
        )
    return {name: str(value) for name, value in env.items()}


def _seconds(folder: Path, table: Mapping[str, Any], default: float) -> float:
    value = table.get("timeout_sec", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise RowError(f"{folder}/task.toml: timeout_sec must be a positive number, got {value!r}")
    return float(value)


def _artifacts(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """Absolute paths in the sandbox that are carried over besides the workdir."""
    found = config.get("artifacts", [])
    paths: list[Any] = [item.get("source") if isinstance(item, Mapping) else item for item in found]
    if not all(isinstance(path, str) and path.startswith("/") and path != "/" for path in paths):
        raise RowError(f"{folder}/task.toml: artifacts must be absolute paths, got {found!r}")
    return paths


def _resources(folder: Path, environment: Mapping[str, Any]) -> Resources:
    cpus = environment.get("cpus")
    return Resources(
        cpus=float(cpus) if cpus else None,
        memory_mb=_megabytes(folder, environment, "memory"),
        disk_mb=_megabytes(folder, environment, "storage"),
    )


def _megabytes(folder: Path, environment: Mapping[str, Any], name: str) -> int | None:
    """``memory_mb = 2048``, or ``memory = "2G"`` of older files."""
    value = environment.get(f"{name}_mb", environment.get(name))
    if value is None:
        return None
    text = str(value).strip().lower().removesuffix("b").removesuffix("i")
    number = text.rstrip("kmgt")
    try:
        return max(1, round(float(number) * _UNITS[text[len(number) :]]))
    except (ValueError, KeyError):
        raise RowError(f"{folder}/task.toml: {name}: expected a size, got {value!r}") from None
