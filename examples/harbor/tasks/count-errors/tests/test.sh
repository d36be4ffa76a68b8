#!/bin/bash

printf 'billing 2\nauth 1\nsearch 1\n' >/tmp/expected
if diff /tmp/expected /app/errors.txt; then
  echo 1 >/logs/verifier/reward.txt
else
  echo 0 >/logs/verifier/reward.txt
fi
