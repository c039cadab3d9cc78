"""Encrypts what goes to another port of the same address, until its standard input closes: tls.py PORT UPSTREAM-PORT CERTIFICATE-AND-KEY.pem [ADDRESS]"""

import asyncio
import ssl
import sys

port, upstream, certificate = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
address = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1"


async def pour(source, sink):
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    except OSError:
        pass
    finally:
        sink.close()


async def serve(reader, writer):
    there, back = await asyncio.open_connection(address, upstream)
    await asyncio.gather(pour(reader, back), pour(there, writer))


async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    await asyncio.start_server(serve, address, port, ssl=context)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
