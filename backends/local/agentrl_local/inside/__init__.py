"""The program that is a sandbox's first process: it runs commands and moves files for the host, over one inherited socket.

It runs inside, on nothing but the standard library of Python 3.9 or newer; the host never imports it. It is pid 1 of its
namespace, so the kernel drops every signal that the agent's code sends it, and it is not dumpable, so that code can read
neither its memory nor its descriptors. When it ends, the kernel ends everything else in the sandbox.

A frame is a header (length of a JSON object, length of a payload), the object, the payload. The host sends requests
with an ``id``, the answer carries the same ``id``; requests overlap freely.
"""
