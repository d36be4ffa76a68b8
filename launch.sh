#!/usr/bin/env bash
# The main job: sets itself up, then trains. Without any variable: a small real model on the tasks of examples/swe, in
# sandboxes of this machine. Every choice is a variable (README, "Settings"); arguments go to `agentrl train`.
#
#   ./launch.sh                                    the demo
#   SWE_AGENT=terminus-2 ./launch.sh               another agent
#   AGENTRL_ENGINE=sglang ./launch.sh              a real SGLang server
#   AGENTRL_ITERATIONS=2 ./launch.sh               two iterations
#   ./launch.sh --resume ID                        go on with an interrupted run
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/scripts/setup.sh" demo
PATH="$here/.venv/bin:$PATH"

export AGENTRL_RUN_DIR="${AGENTRL_RUN_DIR:-$here/runs}"

# Values of the demo, for a model of 135M parameters on two cores; what you set yourself wins.
demo() {
    : "${SWE_TRAIN_DATA:=$here/examples/swe/tasks.jsonl}"
    : "${AGENTRL_MODEL:=$(python -m agentrl_engine_local.demo_model)}"
    : "${AGENTRL_DTYPE:=float32}"
    : "${AGENTRL_ITERATIONS:=15}"
    : "${AGENTRL_GROUPS:=4}" "${AGENTRL_GROUP_SIZE:=8}"
    : "${AGENTRL_LEVELS:=level-1}" "${AGENTRL_LEARNING_RATE:=2e-5}"
    : "${SWE_MAX_TURNS:=1}" "${SWE_MAX_NEW_TOKENS:=32}" "${SWE_CONTEXT_TOKENS:=2048}"
    : "${SWE_MINI_COMMAND_TIMEOUT_SEC:=10}" "${SWE_AGENT_TIME_BUDGET_SEC:=300}" "${SWE_TURN_TIMEOUT_SEC:=240}"
    : "${SWE_EVAL_TIMEOUT_SEC:=60}" "${SWE_ROLLOUT_GUARD_SEC:=600}" "${SWE_SANDBOX_LIFETIME_SEC:=900}"
    export SWE_TRAIN_DATA AGENTRL_MODEL AGENTRL_DTYPE AGENTRL_ITERATIONS AGENTRL_GROUPS AGENTRL_GROUP_SIZE AGENTRL_LEVELS \
        AGENTRL_LEARNING_RATE SWE_MAX_TURNS SWE_MAX_NEW_TOKENS SWE_CONTEXT_TOKENS SWE_MINI_COMMAND_TIMEOUT_SEC \
        SWE_AGENT_TIME_BUDGET_SEC SWE_TURN_TIMEOUT_SEC SWE_EVAL_TIMEOUT_SEC SWE_ROLLOUT_GUARD_SEC SWE_SANDBOX_LIFETIME_SEC
}

# A resumed run has its own settings.
case " $* " in *" --resume"*) ;; *) demo ;; esac

# exec: a signal to this script is a signal to the run.
exec agentrl train "$@"
