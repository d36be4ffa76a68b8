"""How an agent in a sandbox reaches the gateway: directly, at a public name, or through a channel that the host opens outward."""

from __future__ import annotations

from agentrl.relay.ways import Way, base_url, way_to_gateway

__all__ = ["Way", "base_url", "way_to_gateway"]
