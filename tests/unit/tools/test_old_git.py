"""The patch kit asks git for nothing that git 2.20 does not know: a program in git's place refuses everything else.

The list is what the kit used when it ran on a real git 2.20; what is added must be known there too. Also played: options
that 2.20 takes only apart; ignored files that it does not list in new folders; and the owner check of 2.35.2 to 2.37, which
no command line and no environment variable turns off.
"""

from __future__ import annotations

import pytest

from agentrl.api import SandboxSpec
from agentrl.errors import PatchError
from agentrl.tools.git import freeze_start, prune_future
from agentrl.tools.patch import apply_patch, capture_patch, changed_paths, read_base, restore_paths, show_file

REPO = "/work/repo"
KNOWN = {
    "add": "-u",
    "apply": "--whitespace --cached --3way",
    "cat-file": "-e --batch-all-objects --unordered --batch-check",
    "checkout-index": "-a -u",
    "clean": "-ffdq",
    "commit-tree": "-m -p",
    "config": "--local --name-only --get-regexp --unset-all --remove-section",
    "diff-tree": "-r -p -z --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color"
    " --src-prefix --dst-prefix --name-only",
    "init": "-q --bare --template",
    "ls-files": "-s -c -o -i -z --exclude-standard --directory",
    "prune": "--expire",
    "prune-packed": "-q",
    "read-tree": "--empty --reset -u --prefix",
    "repack": "-a -d -q",
    "rev-list": "--count",
    "rev-parse": "--verify -q --show-toplevel --show-object-format",
    "rm": "--cached -r -f -q --ignore-unmatch",
    "symbolic-ref": "-q",
    "update-index": "--add --replace -z --stdin --index-info --force-remove -q --refresh",
    "update-ref": "",
    "version": "",
    "write-tree": "",
}
OLD_GIT = """\
#!/bin/bash
declare -A known=({known})
refuse() {{ echo "git 2.20 knows no $*" >&2; echo "$*" >>/tmp/refused; exit 129; }}
unset GIT_CONFIG_GLOBAL GIT_CONFIG_COUNT
all=("$@")
while [[ ${{1-}} == -* ]]; do
    case $1 in
    -c) case $2 in safe.directory*) refuse "$1 $2" ;; esac; shift 2 ;;
    --literal-pathspecs) shift ;;
    *) refuse "$1" ;;
    esac
done
verb=$1
shift
[[ -v known[$verb] ]] || refuse "$verb"
for word in "$@"; do
    case $word in
    --) break ;;
    -*) case " ${{known[$verb]}} " in *" ${{word%%=*}} "*) ;; *) refuse "$verb $word" ;; esac ;;
    esac
done
case "$verb $*" in
*--cached*--3way* | *--3way*--cached*) refuse "--cached with --3way" ;;
'rev-parse --show-object-format') echo --show-object-format; exit ;;
version*) echo 'git version 2.20.0'; exit ;;
*' -i '*--directory*) exit ;;
esac
grep -qs 'directory = \\*' "$HOME/.gitconfig" || refuse 'a repository of somebody else'
exec {real} "${{all[@]}}"
"""


@pytest.fixture
async def sandbox(local_backend):
    """A machine whose git is old, save for /usr/bin/git in the hands of the tests."""
    spec = SandboxSpec(env={"PATH": "/opt/old:/usr/local/bin:/usr/bin:/bin"})
    machine = await local_backend.create(spec, labels={"agentrl-run": "test"}, lifetime_sec=3600)
    real = (await machine.exec("command -v git", timeout_sec=60)).stdout.decode().strip()
    known = " ".join(f"[{verb}]={options!r}" for verb, options in KNOWN.items())
    await machine.write_file("/opt/old/git", OLD_GIT.format(known=known, real=real).encode(), mode=0o755)
    machine.real = real
    yield machine
    await machine.close()


async def run(sandbox, script, cwd=REPO):
    script = f'git() {{ {sandbox.real} -c user.name=t -c user.email=t "$@"; }}\n{script}'
    result = await sandbox.exec(script, timeout_sec=60, cwd=cwd)
    assert result.ok, result.stderr.decode()
    return result.stdout.decode()


async def test_the_whole_kit_runs_on_an_old_git(sandbox):
    await run(
        sandbox,
        f"mkdir -p {REPO}/sub && cd {REPO} && git init -q . && printf 'one\\ntwo\\n' >code.py && echo x >sub/x"
        " && echo '*.log' >.gitignore && git add -A && git commit -qm base && git tag base"
        " && echo later >sub/x && git commit -qam later && git tag later && git reset -q --hard base && echo loose >loose",
        "/",
    )
    base = await freeze_start(sandbox, REPO)
    assert await read_base(sandbox, REPO) == base
    await prune_future(sandbox, REPO)
    nested = "mkdir lib && cd lib && git init -q . && echo n >n && git add n && git commit -qm n && cd .."
    await run(sandbox, f"{nested}; mkdir new && echo a >new/a.log && echo uno >code.py && rm sub/x && git add code.py")
    captured = await capture_patch(sandbox, REPO, base, exclude=["loose"])
    assert captured.ignored == ("new/a.log",)
    await apply_patch(sandbox, REPO, base, captured.patch)
    assert set(await changed_paths(sandbox, REPO, base)) == {"code.py", "lib/n", "sub/x"}
    assert await restore_paths(sandbox, REPO, base, ["sub"]) == ("sub/x",)
    assert await show_file(sandbox, REPO, base, "code.py") == b"one\ntwo\n"
    assert await run(sandbox, "cat code.py; test ! -e /tmp/refused || cat /tmp/refused") == "uno\n"


async def test_a_patch_that_fits_an_older_file_is_merged(sandbox):
    old, new = "\\n".join("abcdefgh"), "\\n".join("abcXefgh")
    made = await run(
        sandbox,
        f"mkdir -p {REPO} && cd {REPO} && git init -q . && printf '{old}\\n' >f && git add f && git commit -qm old"
        f" && printf '{new}\\n' >f && git diff --full-index && sed -i s/X/d/\\;s/b/B/ f && git commit -qam base",
        "/",
    )
    await apply_patch(sandbox, REPO, await read_base(sandbox, REPO), made.encode())
    assert await run(sandbox, "tr -d '\\n' <f") == "aBcXefgh"


async def test_a_broken_folder_says_what_is_missing(sandbox):
    await run(sandbox, f"mkdir -p {REPO}", "/")
    with pytest.raises(PatchError, match="not the top of a git repository"):
        await read_base(sandbox, REPO)
