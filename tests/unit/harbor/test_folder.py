"""Task directories become tasks, or say what is wrong."""

from __future__ import annotations

import pytest

from agentrl.api import RowError
from agentrl_harbor.folder import read_folder
from agentrl_harbor.settings import HarborSettings
from agentrl_harbor.tasks import HarborFormat


def test_what_a_directory_says(make_folder):
    toml = """
artifacts = ["/a", { source = "/b/c" }]
[task]
name = "org/task"
[metadata]
difficulty = "hard"
[verifier]
timeout_sec = 900
env = { MODE = "x" }
[environment]
cpus = 2
memory = "2G"
storage_mb = 512
env = { LANG = "C" }
"""
    task = read_folder(
        make_folder(toml=toml, dockerfile="FROM debian:12\nENV A=1 LANG=de PATH=/x:$PATH\nWORKDIR /srv\n")
    )
    assert (task.id, task.image, task.workdir, task.level, task.problem) == (
        "org/task",
        "debian:12",
        "/srv",
        "hard",
        "Do it.\n",
    )
    assert (task.resources.cpus, task.resources.memory_mb, task.resources.disk_mb) == (2.0, 2048, 512)
    assert task.env == {"A": "1", "LANG": "C"}
    assert task.metadata["artifacts"] == ["/a", "/b/c"] and task.metadata["verifier_sec"] == 900.0


def test_a_ready_made_image_is_not_built_unless_asked(make_folder):
    folder = make_folder(toml='[environment]\ndocker_image = "ready:1"', dockerfile="FROM debian:12\nRUN true\n")
    ready, built = read_folder(folder), read_folder(folder, build=True)
    assert (ready.image, ready.layers, ready.workdir) == ("ready:1", (), "/app")
    assert built.image == "debian:12" and len(built.layers) == 1


@pytest.mark.parametrize(
    ("size", "megabytes"), [('"512M"', 512), ('"1.5g"', 1536), ('"1GiB"', 1024), ('"1048576k"', 1024), ("300", 300)]
)
def test_sizes(make_folder, size, megabytes):
    assert read_folder(make_folder(toml=f"[environment]\nmemory = {size}")).resources.memory_mb == megabytes


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("[[steps]]\nname = 'a'", "steps"),
        ("[environment]\ngpus = 1", "gpus"),
        ("[environment]\nos = 'windows'", "os"),
        ("[environment]\nmcp_servers = ['x']", "mcp_servers"),
        ("[environment]\nenv = { KEY = '${KEY}' }", "host's environment"),
        ("[environment]\nmemory = 'much'", "memory"),
        ("[environment]\nworkdir = '/'", "workdir"),
        ("[verifier]\nuser = 'tester'", "verifier.user"),
        ("[verifier.environment]\ndocker_image = 'x'", "verifier.environment"),
        ("[verifier]\ntimeout_sec = 0", "timeout_sec"),
        ("artifacts = ['relative']", "artifacts"),
        ("environment = 5", "environment"),
        ("this is no toml", "task.toml"),
    ],
)
def test_what_cannot_be_kept_is_refused(make_folder, toml, complaint):
    with pytest.raises(RowError, match=complaint):
        read_folder(make_folder(toml=toml))


@pytest.mark.parametrize("name", ["instruction.md", "environment/Dockerfile"])
def test_missing_files_are_named(make_folder, name):
    folder = make_folder()
    (folder / name).unlink()
    with pytest.raises(RowError, match=name):
        read_folder(folder)


def test_compose_files_are_refused(make_folder):
    with pytest.raises(RowError, match="docker-compose"):
        read_folder(make_folder(files={"environment/docker-compose.yaml": "services: {}\n"}.items()))


def test_relative_paths_start_from_the_setting(make_folder):
    folder = make_folder()
    protocol = HarborFormat(HarborSettings(tasks_dir=str(folder.parent)))
    assert protocol.read({"path": folder.name}).metadata["folder"] == str(folder)


@pytest.mark.parametrize("row", [{}, {"path": 5}, {"path": "/no/such/folder"}])
def test_a_row_must_name_a_task_directory(row):
    with pytest.raises(RowError, match="path"):
        HarborFormat(HarborSettings()).read(row)
