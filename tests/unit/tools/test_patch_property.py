"""For any change of a tree: capture, then apply on a clean checkout, gives the identical tree."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentrl.tools.git import freeze_start
from agentrl.tools.patch import apply_patch, capture_patch

# Runs inside the sandbox: makes changes, lists trees. Names and contents travel as Latin-1, one character a byte.
TOOL = r"""
import hashlib, json, os, shutil, subprocess, sys
folder, steps = sys.argv[1], json.load(sys.stdin)
os.makedirs(folder, exist_ok=True)
os.chdir(folder)
env = dict(os.environ, GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t", GIT_COMMITTER_NAME="t", GIT_COMMITTER_EMAIL="t")

def git(*args):
    subprocess.run(["git", *args], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

def remove(path):
    if os.path.islink(path) or os.path.isfile(path):
        os.remove(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)

def room(path):
    parent = os.path.dirname(path)
    above = b""
    for part in parent.split(b"/") if parent else []:
        above = os.path.join(above, part)
        if os.path.islink(above) or os.path.isfile(above):
            os.remove(above)
    remove(path)
    if parent:
        os.makedirs(parent, exist_ok=True)

for do, *rest in steps:
    rest = [r.encode("latin-1") if isinstance(r, str) else r for r in rest]
    if do == "write":
        path, data, mode = rest
        room(path)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
    elif do == "link":
        room(rest[0])
        os.symlink(rest[1], rest[0])
    elif do == "delete":
        if not os.path.isabs(rest[0]) and os.path.lexists(rest[0]):
            remove(rest[0])
    elif do == "rename":
        if os.path.lexists(rest[0]) and not rest[1].startswith(rest[0] + b"/") and not rest[0].startswith(rest[1] + b"/"):
            if rest[0] != rest[1]:
                hold = b"/tmp/hold"
                os.rename(rest[0], hold)
                room(rest[1])
                os.rename(hold, rest[1])
    elif do == "nested":
        room(rest[0])
        os.makedirs(rest[0])
        git("init", "-q", rest[0])
        with open(os.path.join(rest[0], b"inside"), "wb") as file:
            file.write(b"inside\n")
        if rest[1]:
            git("-C", rest[0], "add", "-A")
            git("-C", rest[0], "commit", "-qm", "inner")
    elif do == "git":
        git(*rest)
    elif do == "raw":
        os.makedirs(b".git/info", exist_ok=True)
        with open(rest[0], "ab") as file:
            file.write(rest[1])

tree = {}
for top, folders, names in os.walk(b"."):
    folders[:] = [name for name in folders if name != b".git"]
    for name in names + [f for f in folders if os.path.islink(os.path.join(top, f))]:
        if name == b".git":
            continue
        path = os.path.join(top, name)
        info = os.lstat(path)
        if os.path.islink(path):
            what = "link " + os.readlink(path).decode("latin-1")
        else:
            with open(path, "rb") as file:
                what = ("x " if info.st_mode & 0o100 else "- ") + hashlib.sha256(file.read()).hexdigest()
        tree[path.decode("latin-1")] = what
json.dump(tree, sys.stdout)
"""

NAMES = [
    "a",
    "b",
    "c d",
    'q"uote',
    "tab\t",
    "new\nline",
    "\xe9",
    "\xff",
    "-dash",
    "*",
    ":colon",
    "[x]",
    "back\\slash",
    "git~1",
    "A",
]
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
contents = st.one_of(
    st.text(st.characters(max_codepoint=255), max_size=40),
    st.sampled_from(
        ["", "no end", "crlf\r\nmixed\nold\r", "\0binary\0\xff", "$Id$\n", "line\n" * 50, "\xe4\xf6\xfc latin\n"]
    ),
)
writes = st.tuples(st.just("write"), paths, contents, st.sampled_from([0o644, 0o755, 0o600]))
work = st.one_of(
    writes,
    writes,
    st.tuples(st.just("link"), paths, st.sampled_from(["a", "../b", "/etc/passwd", "nowhere", "\xff"])),
    st.tuples(st.just("delete"), paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("nested"), paths, st.booleans()),
    st.sampled_from(
        [
            ("git", "add", "-A"),
            ("git", "commit", "-qam", "agent"),
            ("git", "rm", "-rq", "--cached", "."),
            ("git", "stash", "-u"),
            ("git", "checkout", "-q", "--orphan", "other"),
            ("git", "config", "core.autocrlf", "true"),
            ("git", "config", "core.fileMode", "false"),
            ("git", "config", "core.symlinks", "false"),
            ("git", "config", "core.ignoreCase", "true"),
            ("git", "config", "diff.noprefix", "true"),
            ("git", "config", "filter.f.clean", "rev"),
            ("raw", ".git/info/exclude", "*\n"),
            ("raw", ".git/info/attributes", "* filter=f ident eol=crlf\n"),
            ("raw", ".git/index.lock", ""),
            (
                "write",
                ".gitattributes",
                "* text=auto eol=crlf ident filter=f diff=f working-tree-encoding=UTF-16\n",
                0o644,
            ),
        ]
    ),
)


async def change(sandbox, folder, steps):
    result = await sandbox.exec(["python3", "-c", TOOL, folder], stdin=json.dumps(steps).encode(), timeout_sec=60)
    assert result.ok, result.stderr.decode()
    return json.loads(result.stdout)


@settings(
    max_examples=12,
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(start=st.lists(writes, max_size=5), steps=st.lists(work, min_size=1, max_size=12))
async def test_capture_then_apply_gives_the_identical_tree(sandbox, start, steps):
    await sandbox.exec("rm -rf /work/agent /work/clean; mkdir -p /work", timeout_sec=60)
    before = await change(sandbox, "/work/agent", start)
    base = await freeze_start(sandbox, "/work/agent")
    await sandbox.exec("cp -a /work/agent /work/clean", timeout_sec=60)
    after = await change(sandbox, "/work/agent", steps)

    captured = await capture_patch(sandbox, "/work/agent", base)
    await apply_patch(sandbox, "/work/clean", base, captured.patch)

    assert await change(sandbox, "/work/clean", []) == after
    assert bool(captured.patch) == (before != after)
