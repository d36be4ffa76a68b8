"""Real ranks against a reference written with nothing but transformers and torch."""

import math
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agentrl.api import Sample
from agentrl_megatron.batch import assemble
from agentrl_megatron.micro_batches import plan
from agentrl_megatron.ranks import Ranks
from agentrl_megatron.settings import MegatronSettings
from agentrl_megatron.trainer import summarize

LEARNING_RATE, EPOCHS, TEMPERATURE = 2e-3, 3, 0.7


@dataclass
class Reference:
    """What the same update gives when it is computed one sample at a time, with whole matrices, on one process."""

    model_dir: Path
    model: torch.nn.Module

    def logprobs(self, sample: Sample) -> torch.Tensor:
        ids = torch.tensor([sample.tokens])
        logits = self.model(ids).logits[0, :-1] / TEMPERATURE
        return logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]

    def update(self, rows) -> dict[str, float]:
        optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
        old = [self.logprobs(row.sample).detach() for row in rows]
        losses, visited, clipped, norm = [], 0, 0, 0.0
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            loss = torch.zeros(())
            for row, before in zip(rows, old, strict=True):
                for t in range(1, len(row.sample.tokens)):
                    if row.sample.loss_mask[t]:
                        ratio = torch.exp(self.logprobs(row.sample)[t - 1] - before[t - 1])
                        bounded = min(max(ratio, torch.tensor(0.8)), torch.tensor(1.28))
                        gain = min(ratio * row.advantage, bounded * row.advantage)
                        loss = loss - row.token_weight * gain * min(
                            math.exp(before[t - 1] - row.sample.logprobs[t]), 2.0
                        )
                        visited += 1
                        clipped += int(bounded * row.advantage < ratio * row.advantage)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()
            optimizer.step()
            losses.append(loss.item())
        return {"loss": sum(losses) / EPOCHS, "grad_norm": norm, "clip_fraction": clipped / visited}

    def weights(self) -> dict[str, torch.Tensor]:
        return {n: w for n, w in self.model.state_dict().items() if n != "lm_head.weight"}


def reference_for(model_dir: Path) -> Reference:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager")
    return Reference(model_dir, model)


@pytest.fixture(scope="module")
def case(tiny_llama):
    """Rows whose logprobs are the model's own with known noise, and what the reference makes of them."""
    reference = reference_for(tiny_llama)
    rng = random.Random(3)
    noise: list[float] = []

    def noisy(sample: Sample) -> Sample:
        exact = [0.0, *reference.logprobs(sample).tolist()]
        deltas = [rng.uniform(-1.0, 1.0) if m else 0.0 for m in sample.loss_mask]
        noise.extend(abs(d) for d, m in zip(deltas, sample.loss_mask, strict=True) if m)
        logprobs = tuple(m * (e + d) for m, e, d in zip(sample.loss_mask, exact, deltas, strict=True))
        return Sample(**{**{f: getattr(sample, f) for f in Sample.__slots__}, "logprobs": logprobs})

    return reference, noisy, noise


@pytest.fixture(scope="module")
def expected(case, rows):
    reference, _, noise = case
    result = reference.update(rows)
    return {
        **result,
        "logprob_abs_diff": sum(noise) / len(noise),
        "logprob_abs_diff_max": max(noise),
    }, reference.weights()


@pytest.fixture(scope="module")
def rows(case):
    from agentrl.types import Group, Rollout, Trajectory

    _, noisy, _ = case
    rng = random.Random(5)

    def sample(identity: str, length: int) -> Sample:
        mask = (0, 0, *(rng.choice([1, 1, 1, 0]) for _ in range(length - 3)), 1)
        # Half of the rows begin alike, as the rollouts of a group do, so that they share a line.
        shared = (7, 11, 13, 17) if int(identity[1:]) % 2 else ()
        tokens = (*shared, *(rng.randrange(96) for _ in range(length - len(shared))))
        return noisy(Sample(identity, 0, tokens, mask, (0.0,) * length, 1.0, 0.0))

    def rollout(i: int) -> Rollout:
        reward = float(i % 3 == 0)
        made = (sample(f"r{i}", 6 + 3 * i),)
        return Rollout(f"r{i}", "g", "t", "", 0, "graded", "solved", None, reward, None, made, Trajectory(()), {})

    return assemble([Group("g", "t", tuple(rollout(i) for i in range(5)))], advantage_std=True).rows


@pytest.mark.parametrize(("tp", "pp", "dp"), [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)])
async def test_every_layout_of_ranks_computes_the_reference(
    tiny_llama, make_spec, tmp_path, rows, expected, tp, pp, dp
):
    numbers, weights = expected
    settings = MegatronSettings(tp=tp, pp=pp, dp=dp, threads=1, learning_rate=LEARNING_RATE, epochs=EPOCHS)
    ranks = await Ranks.start(make_spec(tiny_llama, temperature=TEMPERATURE), settings, None)
    try:
        before = await exported(ranks, tmp_path / "before")
        parts = plan(rows, budget=30, dp=dp, uniform=pp > 1)
        assert len(parts[0]) > 1
        assert any(batch.branches.any() for part in parts for batch in part)
        metrics = summarize(await ranks.train(parts))
        after = await exported(ranks, tmp_path / "after")
    finally:
        await ranks.aclose()
    assert_bit_equal(before, load_file(tiny_llama / "model.safetensors"))
    assert {name: metrics[name] for name in numbers} == pytest.approx(numbers, rel=1e-4, abs=1e-4)
    assert metrics["clip_fraction"] > 0
    assert metrics["tis_capped_fraction"] > 0
    assert after.keys() == weights.keys()
    for name, weight in weights.items():
        assert (after[name] - before[name]).abs().max() > LEARNING_RATE, name
        torch.testing.assert_close(after[name], weight, rtol=0, atol=LEARNING_RATE / 50, msg=name)


async def exported(ranks: Ranks, folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir()
    await ranks.all("export", folder=str(folder))
    assert (folder / "config.json").is_file()
    return load_file(folder / "model.safetensors")


def assert_bit_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
