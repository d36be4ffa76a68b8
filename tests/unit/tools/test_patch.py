"""Patches hold all of the agent's work, whatever it did to git, and apply all or nothing."""

from __future__ import annotations

import pytest

from agentrl.api import SandboxSpec
from agentrl.errors import PatchError, PatchRejected, PatchTooLarge
from agentrl.tools.git import freeze_start, prune_future
from agentrl.tools.patch import (
    apply_patch,
    capture_patch,
    changed_paths,
    patched_paths,
    read_base,
    restore_paths,
    show_file,
)

REPO = "/work/repo"
GIT = "git -c user.name=t -c user.email=t@t"


async def run(sandbox, script, cwd=REPO):
    result = await sandbox.exec(script, timeout_sec=60, cwd=cwd)
    assert result.ok, result.stderr.decode()
    return result.stdout


@pytest.fixture
async def base(sandbox):
    setup = (
        f"mkdir -p {REPO} && cd {REPO} && git init -q . && printf 'one\\ntwo\\n' >code.py && mkdir sub && echo x >sub/x "
        f"&& echo '*.log' >.gitignore && git add -A && {GIT} commit -qm base"
    )
    await run(sandbox, setup, cwd="/")
    return await read_base(sandbox, REPO)


async def clean(sandbox, base):
    """A second checkout of the base."""
    await run(
        sandbox, f"rm -rf /work/clean && git clone -q {REPO} /work/clean && git -C /work/clean checkout -q {base}", "/"
    )
    return "/work/clean"


async def test_base_is_the_full_commit_id(sandbox, base):
    assert base == (await run(sandbox, "git rev-parse HEAD")).decode().strip()
    assert len(base) == 40


async def test_base_of_no_repository_is_an_error(sandbox):
    with pytest.raises(PatchError, match="not the top of a git repository"):
        await read_base(sandbox, "/tmp")


async def test_untouched_tree_is_an_empty_patch(sandbox, base):
    assert (await capture_patch(sandbox, REPO, base)).patch == b""


async def test_committed_staged_unstaged_and_new_work_is_in_the_patch(sandbox, base):
    await run(
        sandbox,
        f"echo c >committed && git add -A && {GIT} commit -qm agent && echo s >staged && git add staged && echo n >new",
    )
    await run(sandbox, "echo three >>code.py && git rm -q sub/x")
    patch = (await capture_patch(sandbox, REPO, base)).patch
    target = await clean(sandbox, base)
    await apply_patch(sandbox, target, base, patch)
    assert await run(sandbox, "find . -name .git -prune -o -type f -print | sort", target) == (
        b"./.gitignore\n./code.py\n./committed\n./new\n./staged\n"
    )
    assert await run(sandbox, "cat code.py", target) == b"one\ntwo\nthree\n"


async def test_ignored_files_are_listed_and_tracked_ones_kept(sandbox, base):
    await run(sandbox, "echo a >a.log && mkdir d && echo b >d/b.log && echo forced >f.log && git add -f f.log")
    captured = await capture_patch(sandbox, REPO, base)
    assert set(captured.ignored) == {"a.log", "d/"}
    assert b"f.log" in captured.patch and b"a.log" not in captured.patch


async def test_excluded_paths_are_left_out(sandbox, base):
    await run(sandbox, "echo t >TASK.md && mkdir .ours && echo o >.ours/o && echo w >work")
    patch = (await capture_patch(sandbox, REPO, base, exclude=["TASK.md", ".ours"])).patch
    assert b"b/work" in patch and b"TASK.md" not in patch and b".ours" not in patch


async def test_a_patch_over_the_cap_is_refused_not_cut(sandbox, base):
    await run(sandbox, "head -c 3000 /dev/urandom >noise")
    with pytest.raises(PatchTooLarge):
        await capture_patch(sandbox, REPO, base, max_bytes=2000)
    assert len((await capture_patch(sandbox, REPO, base)).patch) > 3000


SABOTAGE = [
    "touch .git/index.lock .git/HEAD.lock .git/config.lock",
    "echo '[broken' >.git/config",
    "echo garbage >.git/index",
    "rm .git/HEAD .git/index",
    "echo '*' >.git/info/exclude",
    "echo '* filter=evil diff=evil -text ident' >.git/info/attributes && git config filter.evil.clean 'echo gone'",
    "git config core.worktree /tmp && git config core.bare true",
    "printf '#!/bin/sh\\nexit 1\\n' >.git/hooks/pre-commit && git config core.fsmonitor 'touch /tmp/ran'",
    "git update-index --assume-unchanged code.py && git update-index --skip-worktree code.py",
    "chown -R 0:0 . ; git config --global core.autocrlf true; git config --global diff.noprefix true",
    "git replace $(git rev-parse HEAD:code.py) $(git hash-object -w --stdin </dev/null)",
]


async def test_nothing_done_to_git_hides_the_work(sandbox, base):
    target = await clean(sandbox, base)
    for sabotage in SABOTAGE:
        await run(sandbox, f"rm -rf {REPO} && cp -a {target} {REPO}", "/")
        await run(sandbox, "printf 'one\\r\\ntwo\\n' >code.py")
        await run(sandbox, sabotage)
        patch = (await capture_patch(sandbox, REPO, base)).patch
        await apply_patch(sandbox, target, base, patch)
        assert await run(sandbox, "cat code.py", target) == b"one\r\ntwo\n", sabotage
        await run(sandbox, "git checkout -q . && test ! -e /tmp/ran", target)


@pytest.mark.parametrize("born", ["", f"&& git add -A && {GIT} commit -qm inner"])
async def test_a_nested_repository_is_a_folder_of_files(sandbox, base, born):
    await run(
        sandbox,
        f"mkdir -p lib/deep && cd lib/deep && git init -q && echo inner >f && printf 'x.o' >.gitignore && echo o >x.o {born}",
    )
    await run(sandbox, "cd sub && git init -q && echo y >y")
    patch = (await capture_patch(sandbox, REPO, base)).patch
    target = await clean(sandbox, base)
    await apply_patch(sandbox, target, base, patch)
    assert await run(sandbox, "cat lib/deep/f sub/x sub/y && ls -A lib/deep", target) == b"inner\nx\ny\n.gitignore\nf\n"


async def test_unreadable_files_and_folders_are_captured(sandbox, base):
    await run(sandbox, "mkdir closed && echo a >closed/a && chmod 000 closed && echo b >b && chmod 000 b")
    patch = (await capture_patch(sandbox, REPO, base)).patch
    assert b"closed/a" in patch and b"b/b" in patch


@pytest.mark.parametrize("loss", ["rm -rf .git", "rm -rf .git && git init -q", "rm -rf .git/objects/??"])
async def test_a_lost_base_is_an_error_never_an_empty_patch(sandbox, base, loss):
    await run(sandbox, loss)
    with pytest.raises(PatchError):
        await capture_patch(sandbox, REPO, base)


async def test_a_pipe_in_the_place_of_a_file_is_an_error(sandbox, base):
    await run(sandbox, "rm code.py && mkfifo code.py")
    with pytest.raises(PatchError, match=r"code\.py"):
        await capture_patch(sandbox, REPO, base)


async def test_missing_git_says_so(local_backend):
    # Not everybody may remove programs: a search path that has all but git.
    spec = SandboxSpec(env={"PATH": "/tmp/bin"})
    sandbox = await local_backend.create(spec, labels={"agentrl-run": "test"}, lifetime_sec=3600)
    setup = f"mkdir -p /tmp/bin {REPO}; ln -s /usr/bin/* /tmp/bin; rm /tmp/bin/git"
    assert (await sandbox.exec(setup, timeout_sec=60, cwd="/", env={"PATH": "/usr/bin"})).ok
    await run(sandbox, "! command -v git")
    base = "0" * 40
    with pytest.raises(PatchError, match="git is not installed"):
        await capture_patch(sandbox, REPO, base)
    with pytest.raises(PatchError, match="git is not installed"):
        await read_base(sandbox, REPO)
    with pytest.raises(PatchError, match="git is not installed"):
        await freeze_start(sandbox, REPO)
    with pytest.raises(PatchError, match="git is not installed"):
        await prune_future(sandbox, REPO)
    await sandbox.close()


async def test_a_patch_that_does_not_apply_leaves_the_base(sandbox, base):
    half = (
        b"diff --git a/code.py b/code.py\n--- a/code.py\n+++ b/code.py\n@@ -1,2 +1,2 @@\n-one\n+uno\n two\n"
        b"diff --git a/sub/x b/sub/x\n--- a/sub/x\n+++ b/sub/x\n@@ -1 +1 @@\n-never there\n+y\n"
    )
    await run(sandbox, "echo dirt >code.py; echo dirt >dirt")
    with pytest.raises(PatchRejected):
        await apply_patch(sandbox, REPO, base, half)
    assert await run(sandbox, "git status --porcelain; cat code.py") == b"one\ntwo\n"


async def test_a_patch_cannot_leave_the_tree(sandbox, base):
    for path in ("../escape", ".git/hooks/post-checkout", "/etc/owned"):
        patch = f"diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
        with pytest.raises(PatchRejected):
            await apply_patch(sandbox, REPO, base, patch.encode())


async def test_garbage_is_rejected(sandbox, base):
    with pytest.raises(PatchRejected):
        await apply_patch(sandbox, REPO, base, b"not a patch\n")


async def test_apply_keeps_what_git_ignores(sandbox, base):
    await run(sandbox, "echo built >built.log; echo stray >stray")
    patch = b"diff --git a/code.py b/code.py\n--- a/code.py\n+++ b/code.py\n@@ -1,2 +1,2 @@\n-one\n+uno\n two\n"
    await apply_patch(sandbox, REPO, base, patch)
    assert await run(sandbox, "cat built.log code.py; ls stray 2>/dev/null || echo none") == b"built\nuno\ntwo\nnone\n"


async def test_restore_puts_back_edits_deletions_and_additions(sandbox, base):
    await run(sandbox, "echo evil >code.py && rm sub/x && echo new >sub/y && echo kept >other")
    assert set(await changed_paths(sandbox, REPO, base)) == {"code.py", "sub/x", "sub/y", "other"}
    assert set(await restore_paths(sandbox, REPO, base, ["code.py", "sub"])) == {"code.py", "sub/x", "sub/y"}
    assert await run(sandbox, "cat code.py sub/x other; ls sub") == b"one\ntwo\nx\nkept\nx\n"


async def test_restore_replaces_a_link_that_stands_for_a_folder(sandbox, base):
    await run(sandbox, "mkdir fake && echo evil >fake/x && rm -rf sub && ln -s fake sub")
    await restore_paths(sandbox, REPO, base, ["sub/x"])
    assert await run(sandbox, "cat sub/x fake/x; test -L sub || echo folder") == b"x\nevil\nfolder\n"


async def test_show_reads_the_base(sandbox, base):
    await run(sandbox, "echo changed >code.py")
    assert await show_file(sandbox, REPO, base, "code.py") == b"one\ntwo\n"
    with pytest.raises(PatchError):
        await show_file(sandbox, REPO, base, "absent.py")


async def test_nothing_is_left_in_the_sandbox(sandbox, base):
    await capture_patch(sandbox, REPO, base)
    with pytest.raises(PatchRejected):
        await apply_patch(sandbox, REPO, base, b"no")
    await restore_paths(sandbox, REPO, base, ["code.py"])
    assert b"agentrl-" not in await run(sandbox, "ls -A /tmp")


async def test_the_paths_of_a_patch_are_those_that_changed(sandbox, base):
    odd = ["code.py", "a b/c d", "-x", "tab\tin", 'quo"te', "back\\slash", "ümlaut", "b/b/b", "new\nline", "forced.log"]
    for name in odd:
        await sandbox.write_file(f"{REPO}/{name}", b"\0\1" if "a" in name else b"text\n")
    await run(sandbox, "git add -f forced.log")
    captured = await capture_patch(sandbox, REPO, base)
    assert set(patched_paths(captured.patch)) == set(odd)
    assert patched_paths(b"") == ()
