"""Settings that lead the E2B backend to a loopback server."""

from __future__ import annotations

from agentrl_e2b.settings import E2BSettings


def settings_for(server, **others):
    return E2BSettings(
        api_key=server.api_key,
        api_url=server.url,
        sandbox_url=server.url,
        request_sec=others.pop("request_sec", 60),
        **others,
    )
