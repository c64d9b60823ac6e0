"""The config of what is behind Ray Serve: judge, reference judge, rubric writer, and the budget."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from core.config_values import Amount, Part, Processes, Seed, checked_address, checked_variable


class ServedModelConfig(Part):
    """A model behind Ray Serve: the judge's and the writer's common part."""

    backend: Literal["rules", "openai", "vllm"] = "rules"
    model: str = ""
    """Model name (openai) or folder (vllm)."""
    base_url: str | None = None
    """OpenAI-compatible endpoint; None is the provider's own."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; the key itself is never in a config."""
    temperature: float = Field(default=0.0, ge=0.0)
    max_tokens: int = Field(default=4096, ge=1)
    max_model_len: int = Field(default=8192, ge=16)
    """Context of a ``vllm`` backend's engine."""
    timeout_s: float = Field(default=120.0, gt=0.0)
    """Longest wait for one call, retries included."""
    start_timeout_s: float = Field(default=900.0, gt=0.0)
    """Longest wait for the replicas to be ready."""
    max_attempts: int = Field(default=4, ge=1)
    """Tries of one call over transport errors, 408 and 5xx; five times as many over 429."""
    max_concurrency: int = Field(default=16, ge=1)
    """Calls to the endpoint at one time, over all replicas."""
    num_replicas: Processes = 1
    num_cpus: Amount = 0.0
    num_gpus: Amount = 0.0
    """GPUs of one replica."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that a ``vllm`` backend's engine is split over; ``num_gpus`` must say the same."""
    max_ongoing_requests: int = Field(default=64, ge=1)
    """Calls that one replica works on at a time."""
    max_queued_requests: int = Field(default=4096, ge=1)
    seed: Seed = 0
    usd_per_million_prompt_tokens: float = Field(default=0.0, ge=0.0)
    usd_per_million_completion_tokens: float = Field(default=0.0, ge=0.0)

    @property
    def needs_key(self) -> bool:
        """Whether the key must be there: at the provider's own address, and at another one for
        which a variable is named."""
        default = type(self).model_fields["api_key_env"].default
        return self.base_url is None or self.api_key_env != default

    @property
    def calls_at_once(self) -> int:
        """Model calls that one replica may have under way."""
        return self.max_concurrency if self.backend == "openai" else self.max_ongoing_requests

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, address: str | None) -> str | None:
        return address if address is None else checked_address(address)

    @field_validator("api_key_env")
    @classmethod
    def _is_a_variable(cls, name: str) -> str:
        return checked_variable(name)

    @model_validator(mode="after")
    def _model_can_answer(self) -> Self:
        if self.backend != "rules" and not self.model:
            raise ValueError(f"got backend {self.backend!r} without a model, wanted `model: NAME`")
        if self.backend == "vllm" and self.max_tokens >= self.max_model_len:
            raise ValueError(
                f"got max_tokens={self.max_tokens} with max_model_len={self.max_model_len}, wanted "
                "room for a prompt: lower the first or raise the second"
            )
        return self

    @model_validator(mode="after")
    def _engine_has_its_gpus(self) -> Self:
        wanted = self.tensor_parallel_size
        if self.backend == "vllm" and max(1.0, self.num_gpus) != wanted:
            raise ValueError(
                f"got tensor_parallel_size={wanted} with num_gpus={self.num_gpus:g}, wanted as "
                "many GPUs a replica as its engine is split over: set both to the same number"
            )
        return self

    @property
    def has_prices(self) -> bool:
        """Whether its tokens are counted in money."""
        return self.usd_per_million_prompt_tokens + self.usd_per_million_completion_tokens > 0


class GradingConfig(ServedModelConfig):
    """A model that grades: what the judge and the reference judge have in common."""

    template: Literal["ids", "verbatim"] = "ids"
    """Ask by short ids with reasons, or by criterion text without (CARE, figure 3)."""
    per_criterion: bool = False
    """One call a criterion (RLER, MPO) instead of one a response."""


class JudgeConfig(GradingConfig):
    """The judge."""

    max_failed_frac: float = Field(default=0.5, gt=0.0, le=1.0)
    """Stop with a checkpoint when more verdicts than this failed over the last steps."""
    failed_window_steps: int = Field(default=3, ge=1)


class WriterConfig(ServedModelConfig):
    """The rubric writer."""


class ReferenceJudgeConfig(GradingConfig):
    """A judge of another model family that only watches: its scores have weight 0."""

    frac: float = Field(default=0.1, gt=0.0, le=1.0)
    """Share of the rollouts that it scores too."""


class BudgetConfig(Part):
    """What a run may spend on judge, reference judge and writer, over all its parts."""

    usd: float | None = Field(default=None, gt=0.0)
    tokens: int | None = Field(default=None, ge=1)
    """Prompt plus completion tokens."""
