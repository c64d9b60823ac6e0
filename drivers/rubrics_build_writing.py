"""One piece of writing by the rubric writer: asked for until the reply is right, its error told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from core.config_served import ServedModelConfig
from core.errors import WriterReplyError
from core.model_calls import Sampling, user_call
from core.records import PASSING, Completion
from drivers.asking import Asker

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """Why a query gets no rubric."""

    reason: str
    """One of: no_contrast, no_candidates, no_questions, no_reply, no_response, refused_reply,
    no_rubric, no_task, invalid, or what the reader of the query file names."""
    detail: str = ""
    is_passing: bool = False
    """Whether the same command, started again, may do better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Writing(Generic[T]):
    """What to ask for, and how to read it."""

    prompt: Callable[[str], str]
    """The prompt of a try, from why the last one was refused (empty at first)."""
    read: Callable[[Completion], T]
    """Raises WriterReplyError for a reply that cannot be used."""


class Writer:
    """The writer's model, with how often it may try."""

    def __init__(self, asker: Asker, sampling: Sampling, tries: int) -> None:
        self.asker = asker
        self._sampling = sampling
        self._tries = tries

    async def write(self, key: str, writing: Writing[T]) -> T | Drop:
        """Return what was written, or why nothing was."""
        error = ""
        for number in range(self._tries):
            call = user_call(writing.prompt(error), sampling=self._sampling)
            reply = await self.asker.ask(f"{key}#{number}", call)
            if reply.failure is not None:
                detail = f"{reply.failure}: {reply.detail}"
                passing = reply.failure in PASSING
                return Drop(reason="no_reply", detail=detail, is_passing=passing)
            try:
                return writing.read(reply)
            except WriterReplyError as refusal:
                error = str(refusal)
        return Drop(reason="refused_reply", detail=f"{self._tries} tries, last: {error}")


def writer_sampling(config: ServedModelConfig, usual: Sampling) -> Sampling:
    """Return how the writer samples: ``usual``, save for what the config was told."""
    told = config.model_fields_set
    return Sampling(
        temperature=config.temperature if "temperature" in told else usual.temperature,
        top_p=usual.top_p,
        max_tokens=config.max_tokens if "max_tokens" in told else usual.max_tokens,
        seed=config.seed,
        stop=usual.stop,
    )
