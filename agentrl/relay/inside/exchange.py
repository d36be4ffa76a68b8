"""Carries one message from stdin to the program and its answer to stdout. Exit code 3: there is no program any more.

It runs as ``python -c TEXT NAME``, once for every exchange, so it imports next to nothing.
"""

import socket
import sys

program = socket.socket(socket.AF_UNIX)
try:
    program.connect("\0" + sys.argv[1])
except ConnectionRefusedError:
    sys.exit(3)
program.sendall(sys.stdin.buffer.read())
program.shutdown(socket.SHUT_WR)
while True:
    data = program.recv(1 << 16)
    if not data:
        break
    sys.stdout.buffer.write(data)
