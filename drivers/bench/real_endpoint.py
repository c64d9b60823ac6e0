"""An OpenAI-compatible endpoint on loopback that takes a fixed time a call, any number at a time.

It answers validly and cheaply, so that only its latency counts: a judge's request gets a score a
criterion, drawn by a hash of prompt and name; a CARE contrast gets the rubric with one more
criterion. It runs in a process of its own, which ends when the one that started it does.
"""

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_LISTS = re.compile(r"^<(?:un)?satisfied_criteria \w+>\n(.*?)\n</", re.M | re.S)
_END_TIMEOUT_S = 10.0


@contextmanager
def endpoint(seconds: float) -> Iterator[str]:
    """Run the endpoint; yields its ``base_url``."""
    command = [sys.executable, "-m", "drivers.bench.real_endpoint", str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()  # empty when it ended
        if not address:
            raise RuntimeError("got no address from the benchmark's endpoint, wanted it to listen")
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def reply_to(body: Mapping[str, Any]) -> str:
    """Return the text that answers a request's prompt."""
    prompt = "\n".join(str(m["content"]) for m in body["messages"])
    form = body.get("response_format")
    if form is None:
        return contrast_reply(prompt)
    names = form["json_schema"]["schema"]["properties"]
    return json.dumps({n: {"reason": "as it reads", "score": _bit(prompt, n)} for n in names})


def contrast_reply(prompt: str) -> str:
    """Return CARE's reply: the rubric of both lists and one criterion more."""
    kept = [text for found in _LISTS.findall(prompt) for text in json.loads(found)]
    new = f"[llm] Tells of detail {_digest(prompt)[:8]} of the scene"
    return f"<ANALYSIS>a gap</ANALYSIS>\n<FINAL_SET>\n{json.dumps([*kept, new])}\n</FINAL_SET>"


def _bit(prompt: str, name: str) -> int:
    return int(_digest(f"{prompt}\x00{name}"), 16) % 2


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def _serve(seconds: float) -> None:
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
    asyncio.run(_serve(float(sys.argv[1])))
