"""An OpenAI-compatible endpoint on loopback whose replies are a function of the request.

For benchmarks and rehearsals: it takes a fixed time a call, any number at a time, and runs in a
process of its own that ends when the one that started it does. The replies come from a module's
``reply_to(body)``, named on the command line.
"""

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_END_TIMEOUT_S = 10.0


@contextmanager
def loopback_endpoint(replies: str, seconds: float = 0.0) -> Iterator[str]:
    """Run the endpoint with the replies of the module ``replies``; yields its ``base_url``."""
    command = [sys.executable, "-m", "drivers.loopback_endpoint", replies, str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()  # empty when it ended
        if not address:
            raise RuntimeError("got no address from the loopback endpoint, wanted it to listen")
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _serve(reply_to: Callable[[Mapping[str, Any]], str], seconds: float) -> None:
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        await asyncio.sleep(seconds)
        message = {"role": "assistant", "content": reply_to(body)}
        return web.json_response(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
            }
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until whoever started it ends
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(importlib.import_module(sys.argv[1]).reply_to, float(sys.argv[2])))
