"""The loop with real ranks, a scripted run, and an engine that receives over a real process group."""

import asyncio
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed import distributed_c10d

from agentrl.api import TrainerError
from agentrl_megatron.local import launch_local
from agentrl_megatron.settings import MegatronSettings
from agentrl_megatron.trainer import MegatronTrainer

SETTINGS = MegatronSettings(threads=1, learning_rate=1e-3)


class ReceivingEngine:
    """Keeps every set of weights that it receives, by version, and a log of what was asked of it."""

    def __init__(self):
        self.received: dict[str, dict[str, torch.Tensor]] = {}
        self.log: list[str] = []
        self._group = None
        self._version = "loaded"

    async def join_weight_group(self, group):
        assert group.backend == "gloo"
        self._group = await asyncio.to_thread(self._join, group)

    def _join(self, group):
        timeout = timedelta(seconds=600)
        url = f"tcp://{group.address}:{group.port}"
        store, rank, size = next(dist.rendezvous(url, 1, group.world_size, timeout=timeout))
        prefixed = dist.PrefixStore(group.name, store)
        made, _ = distributed_c10d._new_process_group_helper(
            size, rank, [], dist.Backend("gloo"), prefixed, group_name=group.name, timeout=timeout
        )
        distributed_c10d._world.pg_group_ranks[made] = {0: 0, 1: 1}
        return made

    async def pause(self):
        self.log.append("pause")

    async def resume(self):
        self.log.append("resume")

    async def update_weights(self, tensors, group, version):
        self.log.append(f"update {version}")
        self.received[version] = await asyncio.to_thread(self._receive, tensors)
        self._version = version

    def _receive(self, tensors):
        weights = {spec.name: torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in tensors}
        for tensor in weights.values():
            dist.broadcast(tensor, src=0, group=self._group)
        return weights

    async def weight_version(self):
        return self._version


class ScriptedRun:
    """The groups of each iteration, made beforehand."""

    def __init__(self, spec, engine, groups):
        self.spec, self.engine = spec, engine
        self._groups = groups
        self.reports: list[tuple[int, dict[str, float], dict[str, float]]] = []
        self.versions: list[str] = []
        self.phases: list[str] = []

    async def groups(self, iteration):
        self.versions.append(await self.engine.weight_version())
        return await self._groups(iteration)

    async def report(self, iteration, metrics, seconds):
        self.reports.append((iteration, dict(metrics), dict(seconds)))

    def progress(self, phase, detail=""):
        self.phases.append(phase)


@pytest.fixture
def groups(make_group):
    """Two groups an iteration; in iteration 1 nobody differs from their siblings."""

    async def groups(iteration):
        rewards = [1.0, 1.0, 1.0] if iteration == 1 else [1.0, 0.0, 0.0]
        return [make_group(f"a{iteration}", rewards), make_group(f"b{iteration}", [0.5, 0.5, None])]

    return groups


@pytest.fixture
def launched():
    """Ranks' links, to see that none is left."""
    links = []

    async def launch(rank, world, settings, log_dir):
        links.append(await launch_local(rank, world, settings, log_dir))
        return links[-1]

    launch.links = links
    return launch


def assert_same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def assert_all_gone(launch):
    assert launch.links
    assert all(link.program.process.returncode is not None for link in launch.links)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_a_run_and_its_continuation_from_a_checkpoint_end_with_the_same_weights(
    tiny_qwen3, make_spec, groups, launched, tmp_path, dtype
):
    spec = make_spec(tiny_qwen3, iterations=4, checkpoint_every=1, dtype=dtype)
    whole = ScriptedRun(spec, ReceivingEngine(), groups)
    trainer = MegatronTrainer(SETTINGS, launch=launched)
    await trainer.train(whole)
    assert_all_gone(launched)
    check_the_whole_run(whole, tiny_qwen3)
    assert trainer.last_checkpoint(spec.checkpoint_dir) == 4
    assert {path.name for path in spec.checkpoint_dir.iterdir()} == {"iter_000003", "iter_000004", "hf"}

    shutil.copytree(spec.checkpoint_dir / "iter_000003", tmp_path / "later" / "iter_000003")
    again = make_spec(tiny_qwen3, iterations=4, first_iteration=3, checkpoint_dir=tmp_path / "later", dtype=dtype)
    rest = ScriptedRun(again, ReceivingEngine(), groups)
    await trainer.train(rest)
    assert rest.versions == ["3"]
    assert_same(rest.engine.received["3"], whole.engine.received["3"])
    assert_same(rest.engine.received["4"], whole.engine.received["4"])


def check_the_whole_run(run: ScriptedRun, model_dir: Path) -> None:
    received = run.engine.received
    assert run.versions == ["0", "1", "2", "3"]
    assert run.engine.log == [word for n in range(5) for word in ("pause", f"update {n}", "resume")]
    loaded = load_file(model_dir / "model.safetensors")
    assert_same(received["0"], {name: weight.to(getattr(torch, run.spec.dtype)) for name, weight in loaded.items()})
    assert not torch.equal(received["1"]["lm_head.weight"], received["0"]["lm_head.weight"])
    assert_same(received["2"], received["1"])
    assert not torch.equal(received["3"]["lm_head.weight"], received["2"]["lm_head.weight"])
    hf = run.spec.checkpoint_dir / "hf"
    assert_same(load_file(hf / "model.safetensors"), received["4"])
    assert (hf / "config.json").read_bytes() == (model_dir / "config.json").read_bytes()
    assert [iteration for iteration, _, _ in run.reports] == [0, 1, 2, 3]
    _, metrics, seconds = run.reports[0]
    assert metrics["samples_trained"] == 3
    assert metrics["tokens_updated"] == 4 + 5 + 6
    assert metrics["groups_uniform"] == 1
    assert metrics["learning_rate"] == 1e-3
    assert metrics["grad_norm"] > 0
    assert seconds.keys() == {"train", "publish"}
    _, metrics, seconds = run.reports[1]
    assert metrics["groups_uniform"] == 2
    assert "loss" not in metrics
    assert "train" not in seconds
    assert "checkpoint" in seconds  # of the checkpoint that followed the report before
    assert {"start", "train", "publish", "checkpoint", "export"} <= set(run.phases)


async def test_a_cancelled_run_leaves_nothing_behind(tiny_llama, make_spec, launched):
    reached = asyncio.Event()

    async def groups(iteration):
        reached.set()
        await asyncio.Event().wait()

    run = ScriptedRun(make_spec(tiny_llama), ReceivingEngine(), groups)
    async with asyncio.TaskGroup() as tasks:
        training = tasks.create_task(MegatronTrainer(SETTINGS, launch=launched).train(run))
        await reached.wait()
        training.cancel()
    assert training.cancelled()
    assert_all_gone(launched)


@pytest.mark.parametrize(
    ("first", "message"), [(0, "holds a checkpoint of iteration 5"), (9, "no checkpoint of iteration 9")]
)
async def test_a_run_that_does_not_fit_its_checkpoints_starts_nothing(make_spec, groups, launched, first, message):
    spec = make_spec(Path("unused"), first_iteration=first)
    (spec.checkpoint_dir / "iter_000005").mkdir(parents=True)
    with pytest.raises(TrainerError, match=message):
        await MegatronTrainer(SETTINGS, launch=launched).train(ScriptedRun(spec, ReceivingEngine(), groups))
    assert launched.links == []


async def test_everything_that_training_needs_is_installed_here():
    assert await MegatronTrainer(SETTINGS).probe() is None


async def test_what_is_missing_is_named_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "mbridge" else object())
    problem = await MegatronTrainer(SETTINGS).probe()
    assert problem == "missing: mbridge; pip install 'agentrl[megatron]'"
