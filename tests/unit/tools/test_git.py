"""The start state is one commit, the same in every sandbox, and nothing later can be found."""

from __future__ import annotations

import pytest

from agentrl.errors import PatchError
from agentrl.tools.git import freeze_start, prune_future
from agentrl.tools.patch import capture_patch, read_base

REPO = "/work/repo"
GIT = "git -c user.name=t -c user.email=t@t -c protocol.file.allow=always"


async def run(sandbox, script, cwd=REPO):
    result = await sandbox.exec(script, timeout_sec=60, cwd=cwd)
    assert result.ok, result.stderr.decode()
    return result.stdout.decode()


@pytest.fixture
async def repo(sandbox):
    await run(
        sandbox,
        f"mkdir -p {REPO} && cd {REPO} && git init -q -b main . && echo 1 >f && git add -A && {GIT} commit -qm one",
        "/",
    )
    return REPO


async def test_a_folder_becomes_a_repository_with_a_stable_id(sandbox):
    for place in ("/work/one", "/work/two"):
        await run(sandbox, f"mkdir -p {place}/d && echo x >{place}/x && printf 'y' >{place}/d/y && sleep 0.01", "/")
    first, second = await freeze_start(sandbox, "/work/one"), await freeze_start(sandbox, "/work/two")
    assert first == second == await read_base(sandbox, "/work/one")
    assert await run(sandbox, "git status --porcelain; git log --format=%s", "/work/one") == "Start state of the task\n"


async def test_a_clean_repository_keeps_its_commit(sandbox, repo):
    before = await read_base(sandbox, repo)
    assert await freeze_start(sandbox, repo) == before


async def test_what_the_image_left_uncommitted_is_not_the_agents_work(sandbox, repo):
    await run(sandbox, "echo built >artefact && echo 2 >f && git add f")
    base = await freeze_start(sandbox, repo)
    assert (await capture_patch(sandbox, repo, base)).patch == b""
    assert await run(sandbox, "git status --porcelain") == ""


async def test_a_workdir_inside_a_repository_is_refused(sandbox, repo):
    await run(sandbox, "mkdir inner")
    with pytest.raises(PatchError, match="inside the repository"):
        await freeze_start(sandbox, f"{repo}/inner")


async def test_no_later_commit_can_be_found(sandbox, repo):
    later = await run(
        sandbox,
        f"""
        base=$(git rev-parse HEAD)
        for how in branch tag note stash reflog remote alternate worktree; do
            echo $how >f; git add -A; {GIT} commit -qm "later $how"; later=$(git rev-parse HEAD)
            case $how in
            branch) git branch later ;;
            tag) {GIT} tag -a -m t v2 ;;
            note) {GIT} notes add -m n ;;
            stash) echo s >f; {GIT} stash -q; git rev-parse stash ;;
            remote) git clone -q . /work/far; git remote add up /work/far; git fetch -q up ;;
            alternate) git clone -q . /work/lender; echo /work/lender/.git/objects >.git/objects/info/alternates ;;
            worktree) git worktree add -q /work/side $later ;;
            esac
            echo $later
            git reset -q --hard $base
        done
        git repack -a -d -q
        """,
    )
    await prune_future(sandbox, repo)
    await run(sandbox, "mv /work/far /work/lender /work/side /tmp")
    for commit in later.split():
        assert not (await sandbox.exec(["git", "cat-file", "-e", commit], cwd=repo, timeout_sec=60)).ok
    assert (
        await run(sandbox, "git for-each-ref --format='%(refname)'; git remote; git stash list") == "refs/heads/main\n"
    )
    assert await run(sandbox, "git log --all --reflog --format=%s; cat f; git fsck 2>&1") == "one\n1\n"


async def test_history_before_the_base_stays(sandbox, repo):
    await run(sandbox, f"echo 2 >f && {GIT} commit -qam two && git checkout -q --detach")
    await prune_future(sandbox, repo)
    assert await run(sandbox, "git log --format=%s") == "two\none\n"


async def test_a_submodule_stays_as_files_without_its_history(sandbox, repo):
    await run(sandbox, f"git init -q /work/lib && cd /work/lib && echo l >l && git add -A && {GIT} commit -qm lib")
    await run(sandbox, f"{GIT} submodule --quiet add /work/lib lib && {GIT} commit -qm sub")
    base = await freeze_start(sandbox, repo)
    await prune_future(sandbox, repo)
    assert (
        await run(sandbox, "cat lib/l; ls -A lib .git/modules 2>/dev/null || :; git status --porcelain")
        == "l\nlib:\nl\n"
    )
    await run(sandbox, "echo changed >lib/l")
    assert b"lib/l" in (await capture_patch(sandbox, repo, base)).patch


async def test_a_folder_without_repository_cannot_be_pruned(sandbox):
    with pytest.raises(PatchError, match="ordinary repository"):
        await prune_future(sandbox, "/tmp")
