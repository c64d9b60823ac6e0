"""A model behind an OpenAI-compatible endpoint, through the official client.

Temperature, seed and token limit are always sent. A call is tried again after transport errors,
408, 429 and 5xx, at most ``max_attempts`` times and never past ``timeout_s``: back-off grows
exponentially with jitter, and Retry-After is its floor, for every replica. A 429 may come five
times as often, since the shared limiter answers it with less load. What cannot heal is not tried
again: other 4xx, a used-up quota, a content filter (``filtered``), a refusal (``refused``). Each
attempt holds one lease of the limiter; nothing is held while backing off. Arguments that an
endpoint answers with 400 are left out from then on (``response_format`` first of all). The key is
neither logged nor part of a message or a reply, whatever the endpoint echoes.
"""

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from typing import Any

import openai
from openai.types.chat import ChatCompletion
from pydantic import SecretStr

from core.config_served import ServedModelConfig
from core.model_calls import Sampling
from core.records import Completion, FailureKind, Usage
from serve.backends.base import CompletionRequest, cost_usd, failed
from serve.backends.redaction import Redaction
from serve.backends.retry_after import retry_after_s
from serve.limits import CallSlots

_FILTER_CODES = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
)
_FILTERED = frozenset({"content_filter", "safety", "prohibited_content", "blocklist", "spii"})
_REFUSED = frozenset({"refusal", "refused"})
"""Reasons to end a reply, in the words of several providers, in lower case."""
_NO_QUOTA = "insufficient_quota"
_OPTIONAL_ARGUMENTS = (
    "response_format", "seed", "temperature", "max_tokens", "top_p", "stop", "extra_body",
)  # fmt: skip
_FIRST_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 30.0
_THROTTLED_FACTOR = 5
_UNTOLD_PAUSE_S = 1.0
"""Pause of an endpoint that answers 429 without saying for how long."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Again:
    """An attempt that may succeed later."""

    detail: str
    retry_after: float = 0.0
    is_throttled: bool = False


@dataclass(frozen=True, slots=True)
class _Leave:
    """An attempt that the endpoint refused because of one argument."""

    argument: str
    detail: str


@dataclass(slots=True)
class _Call:
    """One ``complete`` under way."""

    request: CompletionRequest
    deadline: float
    left_out: set[str]
    num_attempts: int = 0
    last: str = "no attempt was made"

    @property
    def remaining_s(self) -> float:
        return max(0.001, self.deadline - time.monotonic())

    @property
    def usage(self) -> Usage:
        return Usage(calls=self.num_attempts, retries=max(0, self.num_attempts - 1))


class OpenAIBackend:
    """Completions from an OpenAI-compatible endpoint."""

    def __init__(self, config: ServedModelConfig, api_key: SecretStr, slots: CallSlots) -> None:
        self._config = config
        self._slots = slots
        self._redaction = Redaction(api_key)
        self._left_out: frozenset[str] = frozenset()
        # The retries are ours: the client's would neither count nor share a pause.
        self._client = openai.AsyncOpenAI(
            api_key=api_key.get_secret_value(),
            base_url=config.base_url,
            max_retries=0,
            timeout=config.timeout_s,
        )

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the endpoint's reply, or a failure, within ``config.timeout_s``."""
        started = time.monotonic()
        call = _Call(request, started + self._config.timeout_s, set(self._left_out))
        try:
            async with asyncio.timeout(self._config.timeout_s):
                reply = await self._complete(call)
        except TimeoutError as error:
            detail = str(error) or (
                f"no reply from {self._config.model} in {self._config.timeout_s:g} s "
                f"({call.num_attempts} attempts, last: {call.last})"
            )
            reply = failed(self._config, "timeout", detail, call.usage)
        if reply.failure is not None:
            logger.warning("%s: %s", reply.failure, reply.detail)
        return _timed(reply, time.monotonic() - started)

    async def check_health(self) -> None:
        """Nothing to check: an endpoint that is away may come back."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _complete(self, call: _Call) -> Completion:
        num_failed = num_throttled = 0
        while True:
            outcome = await self._attempt(call, is_retry=num_failed + num_throttled > 0)
            if isinstance(outcome, Completion):
                return outcome
            call.last = outcome.detail
            if isinstance(outcome, _Leave):
                call.left_out.add(outcome.argument)
                continue
            num_failed += not outcome.is_throttled
            num_throttled += outcome.is_throttled
            is_used_up = (
                num_failed >= self._config.max_attempts
                or num_throttled >= self._config.max_attempts * _THROTTLED_FACTOR
            )
            wait_s = _backoff_s(1 if outcome.is_throttled else num_failed) + outcome.retry_after
            if is_used_up or wait_s > call.remaining_s:
                detail = f"{num_failed + num_throttled} attempts failed, last: {outcome.detail}"
                return failed(self._config, "unavailable", detail, call.usage)
            await asyncio.sleep(wait_s)

    async def _attempt(self, call: _Call, *, is_retry: bool) -> Completion | _Again | _Leave:
        lease = await self._slots.acquire(is_retry=is_retry, wait_s=call.remaining_s)
        if lease is None:
            raise TimeoutError
        call.num_attempts += 1
        is_throttled = False
        try:
            reply = await self._client.chat.completions.create(
                **self._arguments(call), timeout=call.remaining_s
            )
        except openai.APIStatusError as error:
            is_throttled = error.status_code == 429
            return await self._after_status(error, call)
        except (openai.APIError, ValueError, RecursionError) as error:
            # Transport errors, and a body that is no JSON, or nested beyond what can be read.
            return _Again(self._redaction.told(f"{type(error).__name__}: {error}"))
        finally:
            await self._slots.release(lease, is_throttled=is_throttled)
        return self._read(reply, call)

    def _arguments(self, call: _Call) -> dict[str, Any]:
        config, sampling = self._config, call.request.sampling_under(self._config)
        arguments: dict[str, Any] = {
            "model": config.model,
            "messages": call.request.conversation,
            "temperature": sampling.temperature,
            "seed": sampling.seed,
            "max_tokens": sampling.max_tokens,
        }
        if sampling.top_p != 1.0:
            arguments["top_p"] = sampling.top_p
        if sampling.stop:
            arguments["stop"] = list(sampling.stop)
        if config.base_url is not None and (extra := _server_arguments(sampling)):
            arguments["extra_body"] = extra
        if call.request.schema is not None:
            arguments["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": call.request.schema},
            }
        for name in call.left_out & arguments.keys():
            value = arguments.pop(name)
            if name == "max_tokens":  # newer models take the limit under this name only
                arguments["max_completion_tokens"] = value
        return arguments

    async def _after_status(
        self, error: openai.APIStatusError, call: _Call
    ) -> Completion | _Again | _Leave:
        status = error.status_code
        detail = self._redaction.told(f"HTTP {status}: {error.message}")
        if (status in (408, 429) or status >= 500) and error.code != _NO_QUOTA:
            wait_s = retry_after_s(error.response.headers, time.time())
            pause_s = wait_s or (_UNTOLD_PAUSE_S if status == 429 else 0.0)
            if pause_s > 0 and status in (429, 503):
                await self._slots.pause(min(pause_s, self._config.timeout_s))
            return _Again(detail, wait_s, is_throttled=status == 429)
        if _is_filtered(error):
            return failed(self._config, "filtered", detail, call.usage)
        argument = _refused_argument(error, self._arguments(call))
        if argument is not None:
            return _Leave(argument, detail)
        return failed(self._config, "unavailable", detail, call.usage)

    def _read(self, reply: object, call: _Call) -> Completion | _Again:
        try:
            assert isinstance(reply, ChatCompletion)
            choice = reply.choices[0]
            text, refusal = _text_of(choice.message.content), choice.message.refusal or ""
            finish_reason = (choice.finish_reason or "").lower()
        except (AssertionError, AttributeError, IndexError, KeyError, TypeError):
            # The client builds its records without checking them, so any shape can come.
            shape = self._redaction.told(f"HTTP 200 with a reply of another shape: {reply!r}")
            return _Again(shape)
        self._remember(call)
        usage = call.usage + self._tokens(reply)
        failure = _failure_of(text, refusal, finish_reason)
        said = f": {refusal}" if refusal else f" after {usage.completion_tokens} tokens, no text"
        return Completion(
            text="" if failure else self._redaction.kept(text),
            finish_reason=finish_reason,
            model=reply.model
            if isinstance(reply.model, str) and reply.model
            else self._config.model,
            usage=usage,
            failure=failure,
            detail=self._redaction.told(f"finish_reason {finish_reason}{said}") if failure else "",
        )

    def _remember(self, call: _Call) -> None:
        """Leave out from now on what a successful call was made without."""
        new = call.left_out - self._left_out
        if new:
            logger.warning("%s refuses %s: left out from now on", self._config.model, sorted(new))
            self._left_out |= new

    def _tokens(self, reply: ChatCompletion) -> Usage:
        prompt_tokens = _count(reply.usage, "prompt_tokens")
        completion_tokens = _count(reply.usage, "completion_tokens")
        return Usage(
            prompt_tokens=prompt_tokens,
            cached_prompt_tokens=_count(
                getattr(reply.usage, "prompt_tokens_details", None), "cached_tokens"
            ),
            completion_tokens=completion_tokens,
            cost_usd=cost_usd(self._config, prompt_tokens, completion_tokens),
        )


def _text_of(content: object) -> str:
    """Return a reply's text; a list of parts may hold the model's thinking beside it."""
    if isinstance(content, list):
        parts = [p["text"] for p in content if p["type"] in ("text", "output_text")]
        return "".join(parts)
    assert content is None or isinstance(content, str)
    return content or ""


def _failure_of(text: str, refusal: str, finish_reason: str) -> FailureKind | None:
    """Return why a reply counts as none. An empty one that is not cut is the reader's to judge."""
    if finish_reason.startswith("content_filter") or finish_reason in _FILTERED:
        return "filtered"
    if refusal or finish_reason in _REFUSED:
        return "refused"
    return "truncated" if not text.strip() and finish_reason == "length" else None


def _count(usage: object, name: str) -> int:
    """Return a number of tokens; 0 where an endpoint says nothing that is one."""
    value = getattr(usage, name, None)
    return value if type(value) is int and value > 0 else 0


def _backoff_s(num_failed: int) -> float:
    """Return the next wait: doubled each time, anywhere in its upper half."""
    return min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (num_failed - 1)) * random.uniform(0.5, 1.0)


def _is_filtered(error: openai.APIStatusError) -> bool:
    inner = error.body.get("innererror") if isinstance(error.body, dict) else None
    codes = {error.code, error.type, inner.get("code") if isinstance(inner, dict) else None}
    return any(isinstance(c, str) and c.lower() in _FILTER_CODES for c in codes)


def _refused_argument(error: openai.APIStatusError, arguments: dict[str, Any]) -> str | None:
    """Return the argument to leave out: the one the endpoint names, else ``response_format``."""
    if error.status_code not in (400, 422):
        return None
    named = (error.param or "").partition(".")[0]
    sent = [name for name in _OPTIONAL_ARGUMENTS if name in arguments]
    extra = arguments.get("extra_body", {})
    if named in extra or (not named and any(name in str(error.message) for name in extra)):
        return "extra_body"
    if named:
        return named if named in sent else None
    mentioned = [name for name in sent if name in str(error.message)]
    if mentioned:
        return mentioned[0]
    return "response_format" if "response_format" in sent else None


def _server_arguments(sampling: Sampling) -> dict[str, float]:
    """Return what servers of one's own (vLLM, SGLang) take beyond the official arguments."""
    extra: dict[str, float] = {}
    if sampling.top_k is not None:
        extra["top_k"] = sampling.top_k
    if sampling.repetition_penalty != 1.0:
        extra["repetition_penalty"] = sampling.repetition_penalty
    return extra


def _timed(reply: Completion, seconds: float) -> Completion:
    return Completion(
        text=reply.text,
        finish_reason=reply.finish_reason,
        model=reply.model,
        usage=reply.usage,
        seconds=seconds,
        failure=reply.failure,
        detail=reply.detail,
    )
