"""The engine protocol, once for every engine: what the client relies on holds for ours and for a real SGLang server.

The model is a tiny random Llama made here; Hugging Face's implementation says which log-probabilities are right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import torch
import torch.distributed as dist
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.distributed import distributed_c10d as c10d
from transformers import LlamaConfig, LlamaForCausalLM

from agentrl.api import ContextOverflow, EngineError, EngineSpec, SamplingParams, TensorSpec, WeightGroup
from agentrl.gateway.engine import SGLangEngine
from agentrl_engine_local.launcher import LocalEngine
from agentrl_engine_local.settings import LocalEngineSettings
from agentrl_sglang.install import is_installed, venv_path
from agentrl_sglang.launcher import SGLangLauncher
from agentrl_sglang.settings import SGLangSettings

CONTEXT = 8192  # so long that no reply of this length ends while we are not looking
LONGEST = CONTEXT - 1  # a prompt leaves room for one token
VOCAB = 300
EOS = 0
PROMPT = [7, 11, 13, 42, 99, 120, 5, 17]
EXACT = 5e-5
PATIENCE = timedelta(minutes=10)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def make_model(folder: Path, *, seed: int) -> Path:
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=VOCAB,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=EOS,
        eos_token_id=EOS,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([Path(__file__).read_text()], trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "bos_token": "<eos>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


@dataclass(frozen=True)
class Served:
    """A running engine, its client, and two models: the one it started with and another one of the same shape."""

    url: str
    client: SGLangEngine
    http: aiohttp.ClientSession
    first: Path
    second: Path

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def generate(self, **body: Any) -> dict[str, Any]:
        status, answer = await self.post("/generate", {"input_ids": PROMPT, "return_logprob": True, **body})
        assert status == 200, answer
        return answer

    async def stream(self, **body: Any) -> AsyncIterator[dict[str, Any]]:
        """The events of a streamed generation; checks that it ends as it should."""
        body = {"input_ids": PROMPT, "return_logprob": True, "stream": True, **body}
        async with self.http.post(f"{self.url}/generate", json=body, read_bufsize=1 << 20) as response:
            last = b""
            async for line in response.content:
                last = line.strip() or last
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
            assert last == b"data: [DONE]"


def launcher(name: str) -> LocalEngine | SGLangLauncher:
    if name == "local":
        return LocalEngine(LocalEngineSettings(threads=1, slots=4, start_sec=600))
    settings = SGLangSettings(threads=1, kv_tokens=2 * CONTEXT)
    if not is_installed(venv_path(settings)):
        pytest.fail("SGLang is not installed; run: python -m agentrl_sglang.install")
    return SGLangLauncher(settings)


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["local", pytest.param("sglang", marks=[pytest.mark.sglang, pytest.mark.slow])],
)
async def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("engine")
    torch.set_num_threads(1)
    first, second = make_model(folder / "first", seed=1), make_model(folder / "second", seed=2)
    running = await launcher(request.param).start(EngineSpec(first, CONTEXT, "float32", 0, folder / "engine.log"))
    client = SGLangEngine(running.url, timeout_sec=600)
    try:
        # Servers close idle connections when they like, and this process does not look while it computes references.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
            yield Served(running.url, client, http, first, second)
    finally:
        await client.aclose()
        await running.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def restored(served: Served) -> AsyncIterator[Served]:
    """For tests that change the weights."""
    yield served
    await served.client.resume()
    await flushed(served)  # a reply may be here before the engine has put its request away
    await served.client.update_weights_from_disk(served.first, "default")


def reference(model: Path, ids: list[int], output: tuple[int, ...], *, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of ``output`` after ``ids`` as Hugging Face computes them."""
    network = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = network(torch.tensor([[*ids, *output]])).logits[0, len(ids) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(output)[:, None])[:, 0]


def assert_exact(logprobs: tuple[float, ...], expected: torch.Tensor) -> None:
    assert (torch.tensor(logprobs) - expected).abs().max() < EXACT


# ------------------------------------------------------------------------------------------------- sampling


async def test_a_generation_has_ids_logprobs_and_the_version(served: Served) -> None:
    answer = await served.generate(
        rid="mine", sampling_params={"max_new_tokens": 9, "temperature": 1.0, "ignore_eos": True}
    )
    meta = answer["meta_info"]
    assert len(answer["output_ids"]) == 9
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 9}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), 9)
    assert meta["weight_version"] == "default"
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": 9}]
    tokenizer = Tokenizer.from_file(str(served.first / "tokenizer.json"))
    assert answer["text"] == tokenizer.decode(answer["output_ids"])


@pytest.mark.parametrize("temperature", [1.0, 0.6])
async def test_logprobs_are_those_of_the_distribution_sampled_from(served: Served, temperature: float) -> None:
    params = SamplingParams(40, temperature=temperature)
    generation = await served.client.generate(PROMPT, params, f"exact-{temperature}")
    expected = reference(served.first, PROMPT, generation.ids, temperature=temperature)
    assert_exact(generation.logprobs, expected)


async def test_a_continued_conversation_stays_exact(served: Served) -> None:
    first = await served.client.generate(PROMPT, SamplingParams(30), "turn-one")
    longer = [*PROMPT, *first.ids, 9, 8, 7, 6]
    second = await served.client.generate(longer, SamplingParams(30), "turn-two")
    assert_exact(second.logprobs, reference(served.first, longer, second.ids))


async def test_a_group_of_equal_prompts_gives_different_exact_samples(served: Served) -> None:
    jobs = [served.client.generate(PROMPT, SamplingParams(24), f"group/{i}") for i in range(6)]
    group = await asyncio.gather(*jobs)
    assert len({generation.ids for generation in group}) > 1
    for generation in group:
        assert_exact(generation.logprobs, reference(served.first, PROMPT, generation.ids))


async def test_temperature_zero_takes_the_likeliest(served: Served) -> None:
    generation = await served.client.generate(PROMPT, SamplingParams(12, temperature=0.0), "greedy")
    network = LlamaForCausalLM.from_pretrained(served.first, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = network(torch.tensor([[*PROMPT, *generation.ids]])).logits[0, len(PROMPT) - 1 : -1]
    assert generation.ids == tuple(logits.argmax(-1).tolist())


async def test_top_k_one_takes_the_likeliest(served: Served) -> None:
    greedy = await served.client.generate(PROMPT, SamplingParams(12, temperature=0.0), "likeliest")
    narrow = await served.client.generate(PROMPT, SamplingParams(12, top_k=1), "top-k")
    assert narrow.ids == greedy.ids


async def test_a_batch_is_answered_in_order(served: Served) -> None:
    prompts = [PROMPT, [3, 1, 4, 1, 5], PROMPT[:3]]
    params = {"max_new_tokens": 4, "temperature": 0.0, "ignore_eos": True}
    answers = await served.generate(input_ids=prompts, sampling_params=params)
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [8, 5, 3]
    for prompt, answer in zip(prompts, answers, strict=True):
        alone = await served.generate(input_ids=prompt, sampling_params=params)
        assert alone["output_ids"] == answer["output_ids"]


async def test_a_stream_is_cumulative(served: Served) -> None:
    params = {"max_new_tokens": 6, "temperature": 0.0, "ignore_eos": True}
    events = [event async for event in served.stream(sampling_params=params)]
    whole = await served.generate(sampling_params=params)
    for event in events:
        assert event["output_ids"] == whole["output_ids"][: len(event["output_ids"])]
    assert events[-1]["output_ids"] == whole["output_ids"]
    assert events[-1]["text"] == whole["text"]
    assert events[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 6}


# ------------------------------------------------------------------------------------------------- stopping


async def test_a_stop_id_ends_the_reply_and_is_part_of_it(served: Served) -> None:
    free = await served.client.generate(PROMPT, SamplingParams(12, temperature=0.0), "free")
    stop = free.ids[4]
    params = SamplingParams(12, temperature=0.0, stop_token_ids=(stop,))
    stopped = await served.client.generate(PROMPT, params, "stopped")
    assert stopped.ids == free.ids[: free.ids.index(stop) + 1]
    assert stopped.finish == "stop"


async def test_a_stop_string_ends_the_reply_and_is_cut_from_the_text(served: Served) -> None:
    params = {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    free = await served.generate(sampling_params=params)
    tokenizer = Tokenizer.from_file(str(served.first / "tokenizer.json"))
    stop = next(
        text
        for token in free["output_ids"][2:]
        if (text := tokenizer.decode([token])).isascii() and text and text in free["text"]
    )
    answer = await served.generate(sampling_params={**params, "stop": [stop]})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert answer["text"] == free["text"].partition(stop)[0]
    assert stop in tokenizer.decode(answer["output_ids"])
    assert answer["output_ids"] == free["output_ids"][: len(answer["output_ids"])]


async def test_the_end_token_ends_the_reply(served: Served) -> None:
    answers = await served.generate(input_ids=[PROMPT] * 8, sampling_params={"max_new_tokens": 400, "temperature": 3.0})
    ended = [a for a in answers if a["meta_info"]["finish_reason"]["type"] == "stop"]
    assert ended, "none of 8 x 400 nearly uniform tokens out of 300 was the end token"
    for answer in ended:
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": EOS}
        assert answer["output_ids"].index(EOS) == len(answer["output_ids"]) - 1


async def test_min_new_tokens_holds_the_end_token_back(served: Served) -> None:
    params = {"max_new_tokens": 60, "min_new_tokens": 50, "temperature": 3.0}
    answers = await served.generate(input_ids=[PROMPT] * 8, sampling_params=params)
    assert min(len(answer["output_ids"]) for answer in answers) >= 50


# --------------------------------------------------------------------------------------------------- errors


async def test_a_prompt_that_is_too_long_says_so(served: Served) -> None:
    with pytest.raises(ContextOverflow) as caught:
        await served.client.generate([5] * (CONTEXT + 10), SamplingParams(4), "long")
    assert (caught.value.tokens, caught.value.limit) == (CONTEXT + 10, LONGEST)


async def test_a_prompt_that_leaves_no_room_says_so(served: Served) -> None:
    with pytest.raises(ContextOverflow) as caught:
        await served.client.generate([5] * (CONTEXT - 10), SamplingParams(100), "no-room")
    assert (caught.value.tokens, caught.value.limit) == (CONTEXT + 90, LONGEST)


@pytest.mark.parametrize(
    "body",
    [
        {"sampling_params": {"max_new_tokens": 4}},
        {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 4, "temperature": -1.0}},
        {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 4, "top_p": 2.0}},
    ],
)
async def test_bad_requests_are_refused_with_a_message(served: Served, body: dict[str, Any]) -> None:
    status, answer = await served.post("/generate", body)
    assert status == 400
    assert answer["error"]["message"]


async def test_it_tells_what_it_is(served: Served) -> None:
    await served.client.health()
    assert await served.client.weight_version() == "default"
    for path in ("/server_info", "/model_info"):
        async with served.http.get(served.url + path) as response:
            assert (await response.json())["model_path"] == str(served.first)


# ----------------------------------------------------------------------------------- aborting and pausing


LONG = {"max_new_tokens": CONTEXT - len(PROMPT), "ignore_eos": True}


async def test_an_abort_gives_what_there_is(served: Served) -> None:
    events = served.stream(rid="to-abort", sampling_params=LONG)
    await anext(events)
    await served.client.abort("to-abort")
    last = [event async for event in events][-1]
    meta, ids = last["meta_info"], last["output_ids"]
    assert meta["finish_reason"]["type"] == "abort"
    assert 0 < len(ids) < LONG["max_new_tokens"]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == ids


async def test_aborting_an_unknown_request_is_fine(served: Served) -> None:
    await served.client.abort("nobody-knows-this-one")


async def flushed(served: Served) -> None:
    """Returns when nothing runs any more: only then is a flush accepted."""
    while (await served.post("/flush_cache", {}))[0] != 200:
        await asyncio.sleep(0.02)


async def test_a_caller_that_gives_up_frees_the_engine(served: Served) -> None:
    await flushed(served)
    await served.client.pause()
    waiting = asyncio.create_task(served.client.generate(PROMPT, SamplingParams(CONTEXT - 20), "given-up"))
    await asyncio.wait([waiting], timeout=0.2)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await served.client.resume()
    async with asyncio.timeout(300):
        await flushed(served)


async def test_while_paused_nothing_is_sampled(served: Served) -> None:
    await served.client.pause()
    waiting = asyncio.create_task(served.client.generate(PROMPT, SamplingParams(3), "patient"))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done()
    await served.client.resume()
    generation = await waiting
    assert_exact(generation.logprobs, reference(served.first, PROMPT, generation.ids))


async def test_pausing_with_abort_ends_what_runs(served: Served) -> None:
    events = served.stream(sampling_params=LONG)
    await anext(events)
    assert (await served.post("/pause_generation", {"mode": "abort"}))[0] == 200
    last = [event async for event in events][-1]
    assert last["meta_info"]["finish_reason"]["type"] == "abort"
    await served.client.resume()


# --------------------------------------------------------------------------------------------------- weights


async def test_weights_from_disk_are_served_as_the_new_version(restored: Served) -> None:
    old = await restored.client.generate(PROMPT, SamplingParams(8, temperature=0.0), "old")
    await flushed(restored)
    await restored.client.update_weights_from_disk(restored.second, "7")
    new = await restored.client.generate(PROMPT, SamplingParams(20), "new")
    assert (old.weight_version, new.weight_version) == ("default", "7")
    assert await restored.client.weight_version() == "7"
    assert_exact(new.logprobs, reference(restored.second, PROMPT, new.ids))


async def test_a_folder_without_weights_is_refused_and_the_old_ones_stay(restored: Served, tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        await restored.client.update_weights_from_disk(tmp_path / "nothing", "8")
    generation = await restored.client.generate(PROMPT, SamplingParams(8), "still-there")
    assert generation.weight_version == "default"
    assert_exact(generation.logprobs, reference(restored.first, PROMPT, generation.ids))


async def test_a_reply_paused_for_an_update_says_which_token_is_whose(restored: Served) -> None:
    events = restored.stream(rid="paused", sampling_params=LONG)
    await anext(events)
    await restored.client.pause()
    await restored.client.update_weights_from_disk(restored.second, "9")
    await restored.client.resume()
    new = 0
    while new < 5:  # the first that come after the change may have been sampled before
        new += (await anext(events))["meta_info"]["weight_version"] == "9"
    await restored.client.abort("paused")
    last = [event async for event in events][-1]
    spans, ids = last["meta_info"]["weight_versions"], tuple(last["output_ids"])
    assert [span["version"] for span in spans] == ["default", "9"]
    change = spans[0]["end"]
    assert [(span["start"], span["end"]) for span in spans] == [(0, change), (change, len(ids))]
    logprobs = tuple(entry[0] for entry in last["meta_info"]["output_token_logprobs"])
    assert_exact(logprobs[:change], reference(restored.first, PROMPT, ids)[:change])
    # What was retracted is computed again, so the second part is exact under the new weights alone.
    assert_exact(logprobs[change:], reference(restored.second, PROMPT, ids)[change:])


def trainer_group(group: WeightGroup, store: dist.Store) -> dist.ProcessGroup:
    """Rank 0's side, made like SGLang's ``init_custom_process_group``."""
    made, _ = c10d._new_process_group_helper(
        group.world_size,
        0,
        [],
        c10d.Backend(group.backend),
        c10d.PrefixStore(group.name, store),
        group_name=group.name,
        timeout=PATIENCE,
    )
    c10d._world.pg_group_ranks[made] = {i: i for i in range(group.world_size)}
    return made


async def test_broadcast_weights_are_served_as_the_new_version(restored: Served) -> None:
    weights = LlamaForCausalLM.from_pretrained(restored.second, dtype=torch.float32).state_dict()
    tensors = {name: tensor.contiguous() for name, tensor in weights.items() if name != "lm_head.weight"}
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=PATIENCE, wait_for_workers=False)
    group = WeightGroup("contract", "127.0.0.1", store.port, 2, "gloo")
    client = restored.client
    rank_zero, _ = await asyncio.gather(asyncio.to_thread(trainer_group, group, store), client.join_weight_group(group))

    def send() -> None:
        for tensor in tensors.values():
            dist.broadcast(tensor, src=0, group=rank_zero)

    specs = [TensorSpec(name, "float32", tuple(tensor.shape)) for name, tensor in tensors.items()]
    try:
        for version in ("10", "11"):
            await client.pause()
            await asyncio.gather(asyncio.to_thread(send), client.update_weights(specs, group, version))
            await client.resume()
            generation = await client.generate(PROMPT, SamplingParams(20), f"after-{version}")
            assert generation.weight_version == version
            assert_exact(generation.logprobs, reference(restored.second, PROMPT, generation.ids))
    finally:
        status, answer = await restored.post("/destroy_weights_update_group", {"group_name": "contract"})
        dist.destroy_process_group(rank_zero)
    assert (status, answer["success"]) == (200, True)


async def test_a_broadcast_outside_an_update_is_refused(served: Served) -> None:
    body = {"names": ["model.norm.weight"], "dtypes": ["float32"], "shapes": [[64]], "group_name": "none"}
    status, answer = await served.post("/update_weights_from_distributed", body)
    assert (status, answer["success"]) == (400, False)


async def test_an_update_cannot_be_ended_before_it_began(served: Served) -> None:
    status, answer = await served.post("/end_weight_update", {})
    assert (status, answer["success"]) == (400, False)
