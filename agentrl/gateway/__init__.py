"""The service that agents talk to in their own API, and that keeps every sampled token exact.

``server`` lets requests in, ``dialects`` translate, ``turn`` takes one turn of a ``session``: ``origin`` tells the agent's requests
from those of code that the policy runs, ``prompt`` says what the engine gets, ``guards`` what may be spent, ``sampler`` asks
the ``engine`` (whose JSON ``protocol`` checks), and the forest records. ``evidence`` keeps the raw exchanges, ``wire`` is JSON that
cannot break. ``relay`` is the other way: turns that a model behind somebody else's API answers.

Not here: how messages become ids (:mod:`agentrl.tokens`), who agents are and when they run (:mod:`agentrl.rollout`).
"""
