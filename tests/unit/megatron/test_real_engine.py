"""The loop against a real engine over HTTP: what it samples after an update is what the ranks compute."""

from agentrl.api import EngineSpec, ExitStatus, Group, Outcome, Rollout, Sample, SamplingParams
from agentrl.gateway.engine import SGLangEngine
from agentrl.types import Trajectory
from agentrl_engine_local.launcher import LocalEngine
from agentrl_engine_local.settings import LocalEngineSettings
from agentrl_megatron.settings import MegatronSettings
from agentrl_megatron.trainer import MegatronTrainer

PROMPT = (5, 17, 3, 42)


class SampledRun:
    """Groups of one task, in which every second rollout is rewarded."""

    def __init__(self, spec, engine):
        self.spec, self.engine = spec, engine
        self.sampled: list[list[Sample]] = []
        self.metrics: list[dict[str, float]] = []

    async def groups(self, iteration):
        samples = [await self._sample(iteration, i) for i in range(8)]
        self.sampled.append(samples)
        return [Group("g", "t", tuple(self._rollout(iteration, sample) for sample in samples))]

    async def _sample(self, iteration, i):
        params = SamplingParams(max_new_tokens=6 + i, seed=i)
        made = await self.engine.generate(PROMPT, params, f"{iteration}-{i}")
        zeros = (0,) * len(PROMPT)
        mask, logprobs = zeros + (1,) * len(made.ids), zeros + made.logprobs
        tokens = PROMPT + made.ids
        return Sample(f"r{i}", 0, tokens, mask, logprobs, 1.0, float(i % 2), weight_versions=(made.weight_version,))

    def _rollout(self, iteration, sample):
        return Rollout(
            id=sample.rollout_id,
            group_id="g",
            task_id="t",
            level="",
            iteration=iteration,
            outcome=Outcome.GRADED,
            exit_status=ExitStatus.SOLVED,
            agent_end=None,
            reward=sample.reward,
            grade=None,
            samples=(sample,),
            trajectory=Trajectory(()),
            seconds={},
        )

    async def report(self, iteration, metrics, seconds):
        self.metrics.append(dict(metrics))

    def progress(self, phase, detail=""):
        pass


async def test_the_engine_samples_from_exactly_the_weights_that_were_trained(tiny_llama, make_spec, tmp_path):
    launcher = LocalEngine(LocalEngineSettings(threads=1, slots=8, start_sec=600))
    running = await launcher.start(EngineSpec(tiny_llama, 128, "float32", 0, tmp_path / "engine.log"))
    engine = SGLangEngine(running.url)
    try:
        run = SampledRun(make_spec(tiny_llama, iterations=3), engine)
        await MegatronTrainer(MegatronSettings(threads=1, learning_rate=1e-2)).train(run)
        assert await engine.weight_version() == "3"
    finally:
        await engine.aclose()
        await running.aclose()
    for iteration, (samples, metrics) in enumerate(zip(run.sampled, run.metrics, strict=True)):
        assert {sample.weight_versions for sample in samples} == {(str(iteration),)}
        assert metrics["logprob_abs_diff_max"] < 1e-4
    # The same seeds under other weights: had the update not arrived, nothing would have changed.
    assert run.sampled[0][0].logprobs != run.sampled[1][0].logprobs != run.sampled[2][0].logprobs
