"""The wire APIs that agents speak: one module each, pure translation, no I/O.

Every module reads a body into :class:`~agentrl.types.ChatRequest` and writes a :class:`~agentrl.types.Reply` as JSON or
as server-sent events. All of them follow the same rules:

- Unknown fields are tolerated; sampling parameters are not read at all (they belong to the run).
- A tool result is a ``tool`` message of its own, in order, whatever message the API carries it in.
- Images and other media are refused as content; inside a tool result they become a line of text that says so, because
  an agent that looks at a picture should be told, not ended.
- Tool arguments that are no JSON object are kept as ``{"arguments": <what came>}``.
"""
