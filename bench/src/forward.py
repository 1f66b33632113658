"""forward.py HOST PORT...: accepts connections at these ports and forwards each to the same port of the host.

It closes those that it cannot forward, as a proxy of a service mesh, docker-proxy and `ssh -L` do. It writes "ready"
when it listens.
"""

import asyncio
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def listen(host: str, port: int) -> None:
    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    await asyncio.start_server(accepted, port=port)


async def main(host: str, ports: list[int]) -> None:
    for port in ports:
        await listen(host, port)
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1], [int(port) for port in sys.argv[2:]]))
