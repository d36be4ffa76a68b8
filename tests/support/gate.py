"""The test's side of :mod:`gated_plugin`: lets every step pass but the one that a test waits for."""

from __future__ import annotations

import asyncio


class Gate:
    """Async context manager. ``port`` is what the run is told."""

    def __init__(self) -> None:
        self.port = 0
        self._stop_at = ""
        self._reached = asyncio.Event()

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._arrive, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def stop_at(self, step: str) -> None:
        """Hold the first step that starts so, until whoever asks is gone; empty: nothing."""
        self._stop_at = step
        self._reached.clear()

    async def reached(self) -> None:
        """Returns when somebody stands at that step."""
        await self._reached.wait()

    async def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            step = (await reader.readline()).decode().strip()
            if self._stop_at and step.startswith(self._stop_at):
                self._stop_at = ""
                self._reached.set()
                await reader.read()
            else:
                writer.write(b"pass\n")
                await writer.drain()
        except ConnectionError:
            pass  # it was killed at the gate
        finally:
            writer.close()
