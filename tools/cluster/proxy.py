"""A TCP proxy between processes and NATS servers: connections that pass no bytes, and messages that do not arrive as sent."""

import asyncio
import contextlib
import random
import re

# Of a NATS message with its header; the protocol's largest payload is 1 MiB.
LINE_BYTES_MAX = 1 << 21
# How late a delayed message is: some steps of an engine.
LATE_S = 0.1


class Disturbance:
    """Loses, doubles and delays a part of the messages that instances send each other; replies of JetStream too."""

    def __init__(self, seed, part=0.02):
        self.random, self.part = random.Random(seed), part
        self.lost = self.doubled = self.late = 0

    def copies(self, subject):
        """When copies of a message are passed on: delays in seconds, 0 for now."""
        if not subject.startswith((b"mr.", b"_INBOX.")):
            return [0]
        chosen = self.random.random() / self.part
        if chosen < 1:
            self.lost += 1
            return []
        if chosen < 2:
            self.doubled += 1
            return [0, 0]
        if chosen < 3:
            self.late += 1
            return [LATE_S]
        return [0]

    def __str__(self):
        return f"{self.lost} messages lost, {self.doubled} doubled, {self.late} late and out of order"


class NatsProxy:
    """One listener for each of the NATS servers at `ports`."""

    def __init__(self, ports, disturbance=None):
        self.targets, self.disturbance = ports, disturbance
        self.passing = asyncio.Event()
        self.passing.set()
        self.listeners, self.tasks = [], set()

    async def __aenter__(self):
        for port in self.targets:

            async def accepted(reader, writer, port=port):
                self.tasks.add(asyncio.current_task())
                with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    await self.connection(reader, writer, port)
                writer.close()
                self.tasks.discard(asyncio.current_task())

            self.listeners.append(await asyncio.start_server(accepted, "127.0.0.1", 0, limit=LINE_BYTES_MAX))
        return self

    async def __aexit__(self, *_):
        for listener in self.listeners:
            listener.close()
        for task in list(self.tasks):
            task.cancel()

    @property
    def servers(self):
        """The addresses for `cluster.servers`."""
        return ",".join(f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}" for listener in self.listeners)

    def stall(self):
        """No byte passes from now on; connections stay open, and new ones are accepted."""
        self.passing.clear()

    def pass_on(self):
        """What has waited passes first."""
        self.passing.set()

    async def connection(self, reader, writer, port):
        await self.passing.wait()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_BYTES_MAX)
        both = {
            asyncio.create_task(self.to_server(reader, server_writer)),
            asyncio.create_task(self.to_client(server_reader, writer)),
        }
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            server_writer.close()

    async def to_server(self, reader, writer):
        while part := await reader.read(1 << 16):
            await self.passing.wait()
            writer.write(part)
            await writer.drain()

    async def to_client(self, reader, writer):
        while frame := await reader.readline():
            fields = frame.split()
            copies = [0]
            if fields and fields[0] in (b"MSG", b"HMSG"):
                frame += await reader.readexactly(int(fields[-1]) + 2)
                copies = self.disturbance.copies(fields[1]) if self.disturbance else copies
            elif fields and fields[0] == b"INFO":
                # The client must not learn of ways around.
                frame = re.sub(rb'"connect_urls":\[[^]]*\]', b'"connect_urls":[]', frame)
            await self.passing.wait()
            for delay in copies:
                asyncio.get_running_loop().call_later(delay, writer.write, frame) if delay else writer.write(frame)
            await writer.drain()
