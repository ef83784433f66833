"""Connections end without a request; those with one are kept as long as the answer takes."""

import asyncio

import uvicorn

from pluribus.serving.impatient import impatient
from pluribus.serving.server import bind


def test_connections_without_a_whole_head_are_closed_and_others_are_kept():
    lines = []

    async def answer(scope, receive, send):
        await asyncio.sleep(0.8)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run():
        config = uvicorn.Config(answer, http=impatient(0.2, 100), log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        listener = bind("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        for head in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
            reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            writer.write(head)
            # Without a limit this would wait for ever.
            lines.append(await asyncio.wait_for(reader.read(), 30))
            writer.close()
        reader, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        lines.append((await asyncio.wait_for(reader.read(15), 30))[:15])
        writer.close()
        server.should_exit = True
        await serving

    asyncio.run(run())
    assert lines == [b"", b"", b"HTTP/1.1 200 OK"]


def test_one_connection_too_many_is_closed_at_once():
    lines = []

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def run():
        config = uvicorn.Config(answer, http=impatient(60, 2), log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        listener = bind("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        address = listener.getsockname()[:2]
        writers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            lines.append((await asyncio.wait_for(reader.read(15), 30))[:15])
            writers.append(writer)
        reader, writer = await asyncio.open_connection(*address)
        try:
            lines.append(await asyncio.wait_for(reader.read(), 30))
        except ConnectionResetError:
            lines.append(b"")
        for one in (*writers, writer):
            one.close()
        server.should_exit = True
        await serving

    asyncio.run(run())
    assert lines == [b"HTTP/1.1 200 OK"] * 2 + [b""]
