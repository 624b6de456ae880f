"""A TCP proxy that cuts connections in the body of a streamed response, after given numbers of bytes."""

import asyncio
import contextlib
import socket
import struct
import threading

HEAD_END = b"\r\n\r\n"


class CuttingProxy:
    """Passes connections on to a port of this machine. Each of the next connections with a stream is cut after its number of
    bytes of `cuts`, by a reset or a close, in turn; then connections are left alone."""

    def __init__(self, port):
        self.target, self.cuts, self.done = port, [], 0
        self.loop = asyncio.new_event_loop()
        listening = threading.Event()

        async def listen():
            self.listener = await asyncio.start_server(self.accepted, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{self.listener.sockets[0].getsockname()[1]}"
            listening.set()
            await asyncio.Event().wait()

        threading.Thread(target=self.loop.run_until_complete, args=(listen(),), daemon=True).start()
        listening.wait()

    def cut(self, cuts):
        """Cuts the next connections."""
        self.cuts, self.done = list(cuts), 0

    async def accepted(self, reader, writer):
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        both = [asyncio.create_task(self.to_server(reader, server_writer)), asyncio.create_task(self.to_client(server_reader, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(*both)
        server_writer.close()
        writer.close()

    async def to_server(self, reader, writer):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()

    async def to_client(self, reader, writer):
        head = await reader.readuntil(HEAD_END)
        writer.write(head)
        cut_after = self.cuts.pop(0) if b"event-stream" in head and self.cuts else None
        passed = 0
        while part := await reader.read(1 << 16):
            if cut_after is not None and passed + len(part) >= cut_after:
                writer.write(part[: cut_after - passed])
                await writer.drain()
                self.done += 1
                # What was written arrives before the connection goes.
                await asyncio.sleep(0.02)
                if self.done % 2:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return
            passed += len(part)
            writer.write(part)
            await writer.drain()
