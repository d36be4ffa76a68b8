"""The service that agents talk to in their own API, and that keeps every sampled token exact.

``server`` lets requests in, ``dialects`` translate, ``turn`` takes one turn of a ``session``: ``prompt`` finds where it continues and
what is new, ``guards`` say what may be spent, ``sampler`` asks the ``engine`` (whose JSON ``protocol`` checks), and the forest
records. ``evidence`` keeps the raw exchanges, ``wire`` is JSON that cannot break.

Not here: how messages become ids (:mod:`agentrl.tokens`), who agents are and when they run (:mod:`agentrl.rollout`).
"""
