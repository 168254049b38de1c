"""A backend of HTTP/1.1: ``backend.py PORT``. ``GET /40`` answers after 40 ms; ``/40/width/2`` serves two at a time;
``/40/bytes/100000`` sends so many bytes."""

import asyncio
import sys
from contextlib import suppress

WIDTHS: dict[str, asyncio.Semaphore] = {}


async def answer(path: str) -> bytes:
    delay, *rest = path.strip("/").split("/")
    options = dict(zip(rest[::2], map(int, rest[1::2]), strict=True))
    width = options.get("width")
    if width is None:
        await asyncio.sleep(int(delay) / 1000)
    else:
        async with WIDTHS.setdefault(path, asyncio.Semaphore(width)):
            await asyncio.sleep(int(delay) / 1000)
    return b'{"ok": true}'.ljust(options.get("bytes", 0))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *fields = head.decode("latin-1").split("\r\n")
            for field in fields:
                name, _, value = field.partition(":")
                if name.lower() == "content-length":
                    await reader.readexactly(int(value))
            body = await answer(first.split()[1].partition("?")[0])
            kind = b"content-type: application/json\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%s" % (kind, len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1000) as server:
        print("listens", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
