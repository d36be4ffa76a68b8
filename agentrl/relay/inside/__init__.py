"""What runs inside a sandbox: Python 3.6 or newer and its standard library, nothing else.

It travels as one archive (:mod:`agentrl.relay.launch`). The host runs :mod:`~agentrl.relay.inside.streams` too, so that both ends
of the channel are one piece of code.
"""
