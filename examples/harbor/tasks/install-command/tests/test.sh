#!/bin/bash
passed=1
[ "$(greet)" = "Hello, world!" ] || passed=0
[ "$(greet Ada)" = "Hello, Ada!" ] || passed=0
[ "$(GREETING=Salut greet Ada)" = "Salut, Ada!" ] || passed=0
echo "$passed" >/logs/verifier/reward.txt
exit $((1 - passed))
