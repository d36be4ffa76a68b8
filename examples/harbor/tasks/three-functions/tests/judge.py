"""Call each function with values of our own, each in a process of its own; write the share that works."""

import json
import subprocess
import sys

module, report = sys.argv[1:]
CASES = {
    "initials": [(["Ada  King"], "AK"), ([" grace brewster hopper "], "gbh")],
    "shortened": [(["abcdef", 4], "abc…"), (["abcd", 4], "abcd"), (["abc", 4], "abc")],
    "counted": [([1, "file"], "1 file"), ([0, "file"], "0 files"), ([2, "file"], "2 files")],
}
CALL = """
import json, runpy, sys
module, name, arguments = json.loads(sys.argv[1])
print(json.dumps(runpy.run_path(module)[name](*arguments)))
"""


def result(name, arguments):
    question = json.dumps([module, name, arguments])
    done = subprocess.run([sys.executable, "-I", "-c", CALL, question], capture_output=True, text=True, timeout=20)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return done.stderr


works = {name: all(result(name, args) == wanted for args, wanted in cases) for name, cases in CASES.items()}
rewards = {"reward": sum(works.values()) / len(works), **{name: int(value) for name, value in works.items()}}
with open(report, "w") as file:
    json.dump(rewards, file)
