"""What judge and writer replicas share: their backend, its health, the config they run."""

import asyncio

from pydantic import SecretStr

from core.config_served import ServedModelConfig
from serve.backends.base import CompletionBackend
from serve.backends.start import start_backend


class Replica:
    """Base of the classes that Ray Serve runs; ``start`` first."""

    _backend: CompletionBackend | None = None

    async def start(
        self, config: ServedModelConfig, api_key: SecretStr, model: str, *, part: str
    ) -> CompletionBackend | None:
        """Start and return the backend; ``model`` is where the config's model lies.

        Identities keep the config's name of the model.
        """
        self._config = config
        served = config.model_copy(update={"model": model})
        self._backend = await start_backend(served, api_key, pool=f"{part} {model}")
        return self._backend

    def config_json(self) -> str:
        """Return the config that this replica runs."""
        return self._config.model_dump_json()

    async def check_health(self) -> None:
        """Raise when this replica must be replaced (called by Serve)."""
        if self._backend is not None:
            await self._backend.check_health()

    async def __del__(self) -> None:
        if self._backend is not None:
            await asyncio.wait_for(self._backend.close(), 30.0)
