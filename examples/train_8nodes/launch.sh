#!/usr/bin/env bash
# Trains a model of the size of Qwen3.6-35B-A3B on 8 nodes of 8 GPUs with slime. slime's loop is untouched: one flag names
# agentrl's rollout, and everything about sandboxes, agents and grading is a variable (see README.md beside this file).
#
#   ./launch.sh --dry-run     print what would run, and start nothing
#   ./launch.sh               run it, on the head node of a Ray cluster that is up
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
# All of them on a file system that every node has: ranks, engines and rollout workers read them by path.
: "${SLIME_DIR:=$HOME/slime}"                        # slime's checkout, installed on every node
: "${MEGATRON_DIR:=$HOME/Megatron-LM}"
: "${HF_CHECKPOINT:=$HOME/models/Qwen3.6-35B-A3B}"   # for the engines, and for agentrl's tokenizer
: "${REF_CHECKPOINT:=${HF_CHECKPOINT}_torch_dist}"   # made by slime's tools/convert_hf_to_torch_dist.py
: "${MODEL_SCRIPT:=$SLIME_DIR/scripts/models/qwen3.5-35B-A3B.sh}"  # slime's table of this architecture's dimensions
: "${RUN_ROOT:=$PWD/runs/8nodes-$(date +%Y%m%d-%H%M%S)}"
: "${SWE_TRAIN_DATA:=$here/../swe/tasks.jsonl}"      # tasks of SWE_TRAIN_PROTOCOL, as agentrl reads them
export SWE_TRAIN_DATA

# ------------------------------------------------------------------------------------------- sandbox, agent, grader
# Swap any of these, and nothing else in this file changes.
: "${SWE_SANDBOX:=e2b}" "${SWE_AGENT:=claude-code}" "${SWE_TRAIN_PROTOCOL:=scaleswe}"
# Keys travel as paths: E2B_API_KEY_FILE=/shared/keys/e2b. A key that is set by value is refused below.
export SWE_SANDBOX SWE_AGENT SWE_TRAIN_PROTOCOL

# --------------------------------------------------------------------------------------------------- how much at once
# 8 tasks x 8 attempts a step. All 64 may be in a sandbox at the same time, and a rollout holds one machine at a time: the
# agent's is gone before the grader's is made. SANDBOX_QUOTA is what your provider allows for this run, with room for
# machines that are being deleted; a quota that is too small shows as bursts of slow starts, then as refusals.
: "${GROUPS_PER_STEP:=8}" "${GROUP_SIZE:=8}" "${SANDBOX_QUOTA:=80}"
: "${SWE_CONCURRENCY:=$((GROUPS_PER_STEP * GROUP_SIZE))}"
: "${SWE_BOOT_CONCURRENCY:=16}"                      # boots at the same time: providers throttle creation, not running
export SWE_CONCURRENCY SWE_BOOT_CONCURRENCY
((SWE_CONCURRENCY * 5 <= SANDBOX_QUOTA * 4)) ||
    stop "SWE_CONCURRENCY=$SWE_CONCURRENCY needs SANDBOX_QUOTA of at least $((SWE_CONCURRENCY * 5 / 4)): one in five machines is on its way out"

# -------------------------------------------------------------------------------------------------------- token caps
# CONTEXT_TOKENS is prompt and reply of the longest turn, and so the longest training sample. TURN_TOKENS is the reply of
# ONE turn, not of a rollout; a reply that hits it is cut off, so size it from the observed maximum, not from the mean. An
# agent that compacts by itself must do so below CONTEXT_TOKENS - TURN_TOKENS.
: "${CONTEXT_TOKENS:=98304}" "${TURN_TOKENS:=32768}"
((TURN_TOKENS * 2 <= CONTEXT_TOKENS)) ||
    stop "TURN_TOKENS=$TURN_TOKENS is more than half of CONTEXT_TOKENS=$CONTEXT_TOKENS: the first prompts would already be refused"
# agentrl takes both from slime's flags; they are exported so that `agentrl plan` checks the same numbers.
export SWE_CONTEXT_TOKENS=$CONTEXT_TOKENS SWE_MAX_NEW_TOKENS=$TURN_TOKENS

# ----------------------------------------------------------------------------------------------------------- timeouts
# From the inside out, each longer than what it waits for: one turn < the agent < the whole rollout < the machine's life.
: "${SWE_TURN_TIMEOUT_SEC:=900}"                     # 32k tokens at 40 a second, with a queue in front
: "${SWE_AGENT_TIME_BUDGET_SEC:=2400}"
: "${SWE_EVAL_TIMEOUT_SEC:=900}"
: "${SWE_ROLLOUT_GUARD_SEC:=$((SWE_AGENT_TIME_BUDGET_SEC + SWE_EVAL_TIMEOUT_SEC + 900))}"   # 900 for boots and installs
: "${SWE_SANDBOX_LIFETIME_SEC:=$((SWE_ROLLOUT_GUARD_SEC + 600))}"
export SWE_TURN_TIMEOUT_SEC SWE_AGENT_TIME_BUDGET_SEC SWE_EVAL_TIMEOUT_SEC SWE_ROLLOUT_GUARD_SEC SWE_SANDBOX_LIFETIME_SEC

# ------------------------------------------------------------------------------------------------------------ network
# Sandboxes call the gateway in slime's rollout process, on whichever node Ray put it, through channels that this process
# opens outward: nothing has to be open to them. Where they can reach that node, ADAPTER_PUBLIC_HOST names it and saves the
# detour; its ADAPTER_PORT must be open to them then.
: "${HEAD_ADDRESS:=$(hostname -I | awk '{print $1}')}"
: "${ADAPTER_PUBLIC_HOST:=}" "${ADAPTER_PORT:=18000-18007}"
if [ -n "$ADAPTER_PUBLIC_HOST" ]; then : "${ADAPTER_BIND_HOST:=0.0.0.0}"; else : "${ADAPTER_BIND_HOST:=127.0.0.1}"; fi
: "${SOCKET_INTERFACE:=eth0}" "${RAY_ADDRESS:=http://127.0.0.1:8265}"
# A proxy in between cuts long turns and sees every token: traffic inside the cluster goes past it.
NO_PROXY="127.0.0.1,localhost,$HEAD_ADDRESS${ADAPTER_PUBLIC_HOST:+,$ADAPTER_PUBLIC_HOST}${NO_PROXY:+,$NO_PROXY}"
no_proxy=$NO_PROXY
export ADAPTER_BIND_HOST ADAPTER_PORT ADAPTER_PUBLIC_HOST NO_PROXY no_proxy

# -------------------------------------------------------------------------------------------------------- parallelism
# 64 GPUs: TP 2 x CP 8 is one replica of 16, so 4 replicas. CP 8 cuts the longest sample into slices of
# CONTEXT_TOKENS / 8, which is what one GPU must hold (--max-tokens-per-gpu). EP 8 keeps the experts of a layer inside
# a node. The batch must be a multiple of the replicas.
: "${NODES:=8}" "${GPUS_PER_NODE:=8}" "${TP:=2}" "${CP:=8}" "${EP:=8}"
batch=$((GROUPS_PER_STEP * GROUP_SIZE)) replicas=$((NODES * GPUS_PER_NODE / (TP * CP)))
((CONTEXT_TOKENS % CP == 0)) || stop "CONTEXT_TOKENS=$CONTEXT_TOKENS must be a multiple of CP=$CP"
((replicas > 0 && batch % replicas == 0)) || stop "$batch rollouts a step cannot be shared by $replicas replicas of TP=$TP x CP=$CP"
parallel=(
    --actor-num-nodes "$NODES" --actor-num-gpus-per-node "$GPUS_PER_NODE" --colocate
    --tensor-model-parallel-size "$TP" --sequence-parallel --pipeline-model-parallel-size 1
    --context-parallel-size "$CP" --expert-model-parallel-size "$EP" --expert-tensor-parallel-size 1
    --use-dynamic-batch-size --max-tokens-per-gpu "$((CONTEXT_TOKENS / CP))" --micro-batch-size 1
    --log-probs-chunk-size 1024                      # the logits of a whole slice at once do not fit
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
    --moe-token-dispatcher-type flex --moe-enable-deepep
    --attention-backend flash --attention-softmax-in-fp32 --accumulate-allreduce-grads-in-fp32
    --attention-dropout 0.0 --hidden-dropout 0.0
)

# ------------------------------------------------------------------------------------------------------------- engines
# One engine a node, attention data-parallel inside it: many long, unequal conversations, few tokens each per step. The
# parsers of tool calls and reasoning are agentrl's own, so none is named here.
engines=(
    --rollout-num-gpus "$((NODES * GPUS_PER_NODE))" --rollout-num-gpus-per-engine "$GPUS_PER_NODE"
    --sglang-mem-fraction-static 0.75 --sglang-context-length "$CONTEXT_TOKENS"
    --sglang-enable-dp-attention --sglang-dp-size "$GPUS_PER_NODE" --sglang-ep-size "$GPUS_PER_NODE"
    --sglang-enable-dp-lm-head --sglang-moe-dense-tp-size 1
)

# ------------------------------------------------------------------------------------------------------------ rollouts
# The one flag that brings agentrl in is the first. The two after it know that a rollout without verdict has no reward, and
# that a rollout may be several samples; groups that are all solved or all failed are drawn again. One optimizer step for each step of rollouts: their log-probabilities
# are those of the policy that is updated.
rollouts=(
    --custom-generate-function-path agentrl_slime.generate
    --custom-reward-post-process-path agentrl_slime.post_process_rewards
    --dynamic-sampling-filter-path agentrl_slime.keep_mixed_group
    --prompt-data "$RUN_ROOT/prompts.jsonl" --input-key prompt --label-key label --metadata-key metadata
    --rollout-shuffle --num-rollout "${STEPS:-100}"
    --rollout-batch-size "$GROUPS_PER_STEP" --n-samples-per-prompt "$GROUP_SIZE"
    --global-batch-size "$batch" --num-steps-per-rollout 1
    --rollout-max-context-len "$CONTEXT_TOKENS" --rollout-max-response-len "$TURN_TOKENS"
    --rollout-temperature 1.0
    --save-debug-rollout-data "$RUN_ROOT/rollouts/{rollout_id}.pt"
)

# ------------------------------------------------------------------------------------------- objective and optimizer
learning=(
    --advantage-estimator grpo --eps-clip 0.2 --eps-clip-high 0.28 --entropy-coef 0.0 --kl-coef 0.0
    --optimizer adam --lr 1e-6 --lr-decay-style constant --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.98
    --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer
)
checkpoints=(
    --hf-checkpoint "$HF_CHECKPOINT" --ref-load "$REF_CHECKPOINT" --save "$RUN_ROOT/checkpoints" --save-interval 20
)

# -------------------------------------------------------------------------------------------------------------- model
MODEL_ARGS=()
if [[ -f $MODEL_SCRIPT ]]; then
    # shellcheck source=/dev/null
    source "$MODEL_SCRIPT"
elif $dry_run; then
    MODEL_ARGS=("<MODEL_ARGS of $MODEL_SCRIPT>")
else
    stop "MODEL_SCRIPT=$MODEL_SCRIPT: no such file (SLIME_DIR must be slime's checkout)"
fi

# ------------------------------------------------------------------------------------------------------------- launch
# The list of what travels to the workers is generated from what the chosen parts declare; --also adds what Ray, NCCL and
# Megatron want.
environment=$(agentrl env --ray-json \
    --also "NO_PROXY=$NO_PROXY" --also "no_proxy=$no_proxy" --also "PYTHONPATH=$MEGATRON_DIR:$SLIME_DIR" \
    --also "GLOO_SOCKET_IFNAME=$SOCKET_INTERFACE" --also "NCCL_SOCKET_IFNAME=$SOCKET_INTERFACE" \
    --also CUDA_DEVICE_MAX_CONNECTIONS=1 --also NCCL_NVLS_ENABLE=0)

run mkdir -p "$RUN_ROOT"
# Whatever does not fit together is said here, with the variable's name, before a GPU or a sandbox is used.
run agentrl plan --for rollout "AGENTRL_MODEL=$HF_CHECKPOINT" "AGENTRL_ENGINE=http://127.0.0.1:1"
run agentrl data convert "$SWE_TRAIN_DATA" "$RUN_ROOT/prompts.jsonl" --format slime
# --no-wait: the job belongs to the cluster, and lives on when this shell goes.
run ray job submit --address "$RAY_ADDRESS" --no-wait --runtime-env-json "$environment" -- \
    python3 -u "$SLIME_DIR/train.py" \
    "${MODEL_ARGS[@]}" "${checkpoints[@]}" "${rollouts[@]}" "${learning[@]}" "${parallel[@]}" "${engines[@]}"
