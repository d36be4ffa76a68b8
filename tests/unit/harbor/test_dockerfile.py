"""Dockerfiles: what is understood, and what is refused with its line."""

from __future__ import annotations

import pytest

from agentrl.api import Resources, RowError, SandboxSpec
from agentrl_harbor.dockerfile import read_dockerfile


@pytest.fixture
def read(tmp_path):
    def make(text, **files):
        folder = tmp_path / "environment"
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content)
        (folder / "Dockerfile").write_text(text)
        return read_dockerfile(folder / "Dockerfile")

    return make


def test_an_image_alone_needs_no_layer(read):
    recipe = read('# syntax=docker/dockerfile:1\nARG TAG=12\nFROM debian:${TAG} AS base\nCMD ["bash"]\n')
    assert (recipe.image, recipe.workdir, recipe.layer) == ("debian:12", "", None)


def test_the_same_files_make_the_same_layer(read):
    text = "FROM debian:12\nCOPY a.txt /app/\n"
    first, second, other = read(text, **{"a.txt": "1"}), read(text, **{"a.txt": "1"}), read(text, **{"a.txt": "2"})
    assert first.layer.digest == second.layer.digest != other.layer.digest


def test_folders_and_variables_follow_from_line_to_line(read):
    recipe = read(
        'FROM debian:12\nENV A=1 B="2 3"\nENV OLD the rest\nWORKDIR /srv\nWORKDIR $A/x\nENV PATH=/opt/bin:$PATH\n'
    )
    assert recipe.workdir == "/srv/1/x"
    assert recipe.env == {"A": "1", "B": "2 3", "OLD": "the rest", "PATH": "/opt/bin:$PATH"}


@pytest.mark.parametrize(
    "line",
    [
        *("FROM debian:12", "COPY --from=builder /a /b", "RUN --mount=type=cache true", "RUN cat <<EOF", "USER nobody"),
        *("ADD https://example.org/a /a", "ADD a.tar.gz /", "ONBUILD RUN true", "COPY a", "COPY --chown=me a b"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(read, line):
    with pytest.raises(RowError, match=r"Dockerfile:3: "):
        read(f"FROM debian:12\n\n{line}\n")


def test_an_image_must_be_named(read):
    with pytest.raises(RowError, match="no FROM"):
        read("RUN true\n")


BUILD = r"""
FROM debian:12
ENV GREETING="hello \"you\"" \
    PATH=/opt/tools:$PATH
WORKDIR /app
# a comment between
COPY one.txt two.txt many/
COPY one.txt renamed.txt
COPY *.sh .
COPY --chmod=755 run.sh /opt/tools/run
COPY . everything
RUN echo "$GREETING" >said && run >>said
RUN ["sh", "-c", "pwd >>said"]
RUN a=1; \
    # a comment inside
    echo $a >>said
"""


async def test_it_builds_what_docker_would(read, host):
    recipe = read(BUILD, **{"one.txt": "1", "two.txt": "2", "run.sh": "#!/bin/sh\necho ran\n"})
    image = await host.prepare(recipe.image, Resources(), [recipe.layer])
    sandbox = await host.create(SandboxSpec(image=image), labels={}, lifetime_sec=3600)
    listed = await sandbox.exec("find . -type f | sort; cat said", cwd="/app", timeout_sec=60)
    await sandbox.close()
    assert listed.stdout.decode().splitlines() == [
        *("./everything/Dockerfile", "./everything/one.txt", "./everything/run.sh", "./everything/two.txt"),
        *("./many/one.txt", "./many/two.txt", "./renamed.txt", "./run.sh", "./said"),
        *('hello "you"', "ran", "/app", "1"),
    ]
