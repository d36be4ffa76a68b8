from agentrl.errors import SandboxThrottled, SandboxTransient
from agentrl.lease.retries import BACKOFF_CAP_SEC, retry_delay


def test_delays_are_jittered_and_bounded():
    error = SandboxTransient("x")
    delays = [retry_delay(error, attempt) for attempt in range(40) for _ in range(5)]
    assert all(0 <= delay <= BACKOFF_CAP_SEC for delay in delays)
    assert len(set(delays)) > 100


def test_never_sooner_than_the_provider_wishes():
    assert all(retry_delay(SandboxThrottled("x", 7.0), attempt) >= 7.0 for attempt in range(20))
