"""Which replies hold a command, and what the others are told."""

import pytest

from agentrl_mini_swe.reply import ReplyError, read_command


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        ("```bash\nls -la\n```", "ls -la"),
        ("I look first.\n\n```bash\nls\n```\nThen I edit.", "ls"),
        ("```sh\nls\n```", "ls"),
        ("```bash  \ncat > a.py <<'EOF'\nx = 1\n\ny = `2`\nEOF\n```  ", "cat > a.py <<'EOF'\nx = 1\n\ny = `2`\nEOF"),
        ("```bash\necho 'a ``` b'\n```", "echo 'a ``` b'"),
        ("The output was:\n```\nerror\n```\nSo:\n```bash\nls\n```", "ls"),
    ],
)
def test_one_block_is_a_command(reply, command):
    assert read_command(reply) == command


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "No bash block found"),
        ("ls -la", "No bash block found"),
        ("```python\nprint()\n```", "No bash block found"),
        ("`ls`", "No bash block found"),
        ("```bash\n\n```", "empty"),
        ("```bash\nrm -rf build", "not closed"),
        ("```bash\nls\n```\n```bash\npwd\n```", "2 bash blocks"),
    ],
)
def test_anything_else_says_what_is_wrong(reply, reason):
    with pytest.raises(ReplyError, match=reason):
        read_command(reply)
