#!/bin/bash
cd /app/notes
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
git log --format=%s main >/tmp/log
if printf 'Add chapter two\nAdd chapter one\n' | diff - /tmp/log &&
  [ "$(cat chapter-two.md)" = "# Two" ] &&
  [ "$(tail -n 1 chapter-one.md)" = "A first sentence." ]; then
  echo 1.0 >/logs/verifier/reward.txt
else
  echo 0.0 >/logs/verifier/reward.txt
fi
