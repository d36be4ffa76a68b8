"""agentrl trains coding agents by reinforcement learning, with any sandbox, any agent and any grader."""

__version__ = "0.1.0"
