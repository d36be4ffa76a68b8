#!/usr/bin/env bash
# Trains GLM-4.7-Flash on one node of 8 GPUs with miles: terminus-2 as the agent, its machines at Daytona, tasks in Harbor's
# folders. miles' loop is untouched. README.md beside this file has the operations notes.
#
#   ./launch.sh --dry-run     print what would run, and start nothing
#   ./launch.sh               run it, with `ray start --head --num-gpus 8` done before
#
# Every value below is a default: what you export before wins.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dry_run=false
[[ ${1:-} == --dry-run ]] && dry_run=true

stop() { printf 'launch.sh: %s\n' "$*" >&2; exit 2; }
show() { printf '%q ' "$@"; printf '\n'; }
run() { if $dry_run; then show "$@"; else "$@"; fi; }

# ------------------------------------------------------------------------------------------------------------- paths
: "${MILES_DIR:=$HOME/miles}" "${MEGATRON_DIR:=$HOME/Megatron-LM}"
: "${HF_CHECKPOINT:=$HOME/models/GLM-4.7-Flash}" "${REF_CHECKPOINT:=${HF_CHECKPOINT}_torch_dist}"
: "${MODEL_TYPE:=glm4.7-flash}"                      # a file of miles' scripts/models: the architecture's dimensions
: "${RUN_ROOT:=$PWD/runs/1node-$(date +%Y%m%d-%H%M%S)}"

# ------------------------------------------------------------------------------------------- sandbox, agent, grader
# SWE_TRAIN_DATA: a folder of task folders, or a JSONL file. A folder that is missing is an error when the data is converted,
# never a reward of 0. DAYTONA_API_KEY_FILE names the file with the key.
: "${SWE_SANDBOX:=daytona}" "${SWE_AGENT:=terminus-2}" "${SWE_TRAIN_PROTOCOL:=harbor}"
: "${SWE_TRAIN_DATA:=$here/../harbor/tasks}"
export SWE_SANDBOX SWE_AGENT SWE_TRAIN_PROTOCOL SWE_TRAIN_DATA

# --------------------------------------------------------------------------------------------------- how much at once
# 4 tasks x 8 attempts a step, all of them in a machine at once. Daytona counts disk: concurrent machines x disk of each, and
# stopped machines count too. Near the quota boots get slow, at the quota they are refused.
: "${GROUPS_PER_STEP:=4}" "${GROUP_SIZE:=8}" "${SANDBOX_DISK_GB:=10}" "${DISK_QUOTA_GB:=400}"
: "${SWE_CONCURRENCY:=$((GROUPS_PER_STEP * GROUP_SIZE))}" "${SWE_BOOT_CONCURRENCY:=8}"
export SWE_CONCURRENCY SWE_BOOT_CONCURRENCY
((SWE_CONCURRENCY * SANDBOX_DISK_GB * 5 <= DISK_QUOTA_GB * 4)) ||
    stop "SWE_CONCURRENCY=$SWE_CONCURRENCY x SANDBOX_DISK_GB=$SANDBOX_DISK_GB must stay under four fifths of DISK_QUOTA_GB=$DISK_QUOTA_GB"

# -------------------------------------------------------------------------------------------------------- token caps
# TURN_TOKENS caps ONE turn; a reply that hits it is cut off and none of its commands run. CONTEXT_TOKENS is the whole
# conversation. Raise TURN_TOKENS when the share of truncated rollouts is well above 0.
: "${CONTEXT_TOKENS:=65536}" "${TURN_TOKENS:=16384}"
((TURN_TOKENS * 2 <= CONTEXT_TOKENS)) ||
    stop "TURN_TOKENS=$TURN_TOKENS is more than half of CONTEXT_TOKENS=$CONTEXT_TOKENS"
export SWE_CONTEXT_TOKENS=$CONTEXT_TOKENS SWE_MAX_NEW_TOKENS=$TURN_TOKENS
: "${SWE_MAX_TURNS:=100}"
export SWE_MAX_TURNS

# ----------------------------------------------------------------------------------------------------------- timeouts
# From the inside out: one turn < the agent < the whole rollout < the machine's life. Terminal tasks run past an hour.
: "${SWE_TURN_TIMEOUT_SEC:=900}" "${SWE_AGENT_TIME_BUDGET_SEC:=5400}" "${SWE_EVAL_TIMEOUT_SEC:=1200}"
: "${SWE_ROLLOUT_GUARD_SEC:=$((SWE_AGENT_TIME_BUDGET_SEC + SWE_EVAL_TIMEOUT_SEC + 1200))}"   # first boots of an image are cold
: "${SWE_SANDBOX_LIFETIME_SEC:=$((SWE_ROLLOUT_GUARD_SEC + 600))}"
export SWE_TURN_TIMEOUT_SEC SWE_AGENT_TIME_BUDGET_SEC SWE_EVAL_TIMEOUT_SEC SWE_ROLLOUT_GUARD_SEC SWE_SANDBOX_LIFETIME_SEC

# ------------------------------------------------------------------------------------------------------------ network
# terminus-2 runs on this host and only its commands go to the machines, so nothing has to reach us from outside.
: "${RAY_ADDRESS:=http://127.0.0.1:8265}"
NO_PROXY="127.0.0.1,localhost,$(hostname -I | awk '{print $1}')${NO_PROXY:+,$NO_PROXY}"
no_proxy=$NO_PROXY
export NO_PROXY no_proxy

# --------------------------------------------------------------------------------------------------- who keeps tokens
# agentrl: its gateway samples, and miles gets finished samples; conversations may fork and any agent will do.
# miles:   miles' session server samples, and agentrl brings sandbox, agent and grader; the agent must speak Chat Completions
#          and only ever add to its conversation.
: "${TOKENS_KEPT_BY:=agentrl}"
case $TOKENS_KEPT_BY in
    agentrl) tokens=(--custom-generate-function-path agentrl_miles.generate) ;;
    miles)
        tokens=(
            --custom-generate-function-path miles.rollout.generate_hub.agentic_tool_call.generate
            --custom-agent-function-path agentrl_miles.agent
            --use-session-server --tito-model glm47 --max-seq-len "$CONTEXT_TOKENS"
            --sglang-tool-call-parser glm47 --sglang-reasoning-parser glm45
        )
        ;;
    *) stop "TOKENS_KEPT_BY=$TOKENS_KEPT_BY should be agentrl or miles" ;;
esac

# ------------------------------------------------------------------------------------------------------------ rollouts
# A rollout without a verdict has no reward. check_no_aborted leaves its group out and miles draws another: without it the
# first missing verdict ends the run.
rollouts=(
    "${tokens[@]}"
    --custom-rm-path agentrl_miles.reward_func
    --dynamic-sampling-filter-path miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted
    --prompt-data "$RUN_ROOT/prompts.jsonl" --input-key prompt --label-key label --metadata-key metadata
    --rollout-shuffle --num-rollout "${STEPS:-200}"
    --rollout-batch-size "$GROUPS_PER_STEP" --n-samples-per-prompt "$GROUP_SIZE"
    --global-batch-size "$((GROUPS_PER_STEP * GROUP_SIZE))" --balance-data
    --rollout-max-context-len "$CONTEXT_TOKENS" --rollout-max-response-len "$TURN_TOKENS"
    --rollout-temperature 1.0
    --dump-details "$RUN_ROOT/details"               # written by the trainer itself: believe it rather than a dashboard
)

# ------------------------------------------------------------------------------------------- parallelism and engines
# Trainer and engines share the 8 GPUs (--colocate). TP 4 with the experts over all 8; one engine a GPU, since the model
# fits one and rollouts wait for machines more than for tokens.
parallel=(
    --actor-num-nodes 1 --actor-num-gpus-per-node 8 --rollout-num-gpus 8 --colocate
    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 1 --context-parallel-size 1
    --expert-model-parallel-size 8 --expert-tensor-parallel-size 1
    --use-dynamic-batch-size --max-tokens-per-gpu 16384
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
    --attention-backend flash --attention-softmax-in-fp32 --accumulate-allreduce-grads-in-fp32
    --attention-dropout 0.0 --hidden-dropout 0.0
    --rollout-num-gpus-per-engine 1 --sglang-mem-fraction-static 0.7 --sglang-context-length "$CONTEXT_TOKENS"
)

# ------------------------------------------------------------------------------------------- objective and optimizer
learning=(
    --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 --entropy-coef 0.0
    --use-kl-loss --kl-loss-coef 0.01 --kl-loss-type low_var_kl
    --optimizer adam --lr 1e-6 --lr-decay-style constant --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.98
    --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer
)
checkpoints=(
    --hf-checkpoint "$HF_CHECKPOINT" --ref-load "$REF_CHECKPOINT" --save "$RUN_ROOT/checkpoints" --save-interval 20
)

# -------------------------------------------------------------------------------------------------------------- model
model=("<model arguments of $MODEL_TYPE from $MILES_DIR>")
if [[ -d $MILES_DIR/miles ]]; then
    mapfile -t model < <(cd "$MILES_DIR" && MODEL_TYPE=$MODEL_TYPE python3 -c '
import os, shlex
from miles.utils.external_utils.command_utils import shell_safe_model_args
print(*shlex.split(shell_safe_model_args(os.environ["MODEL_TYPE"])), sep="\n")')
elif ! $dry_run; then
    stop "MILES_DIR=$MILES_DIR: no checkout of miles is there"
fi

# ------------------------------------------------------------------------------------------------------------- launch
environment=$(agentrl env --ray-json \
    --also "NO_PROXY=$NO_PROXY" --also "no_proxy=$no_proxy" --also "PYTHONPATH=$MEGATRON_DIR:$MILES_DIR" \
    --also CUDA_DEVICE_MAX_CONNECTIONS=1)

run mkdir -p "$RUN_ROOT"
# Whatever does not fit together is said here, with the variable's name, before a GPU or a machine is used.
run agentrl plan --for rollout "AGENTRL_MODEL=$HF_CHECKPOINT" "AGENTRL_ENGINE=http://127.0.0.1:1"
run agentrl data convert "$SWE_TRAIN_DATA" "$RUN_ROOT/prompts.jsonl" --format miles
# --no-wait: the job belongs to Ray, and lives on when this shell goes.
run ray job submit --address "$RAY_ADDRESS" --no-wait --runtime-env-json "$environment" -- \
    python3 -u "$MILES_DIR/train.py" \
    "${model[@]}" "${checkpoints[@]}" "${rollouts[@]}" "${learning[@]}" "${parallel[@]}"
