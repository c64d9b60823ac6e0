"""What is evaluated: a model by its name, or the checkpoints and the final policy of a run.

A run's checkpoint is exported into a Hugging Face folder for as long as it is evaluated; the final
policy lies there already. Checkpoints of a run that is going on are read, never changed; one that
the run removes meanwhile is reported by name.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.config_served import ServedModelConfig
from core.errors import ConfigError
from drivers.asking import say
from drivers.checkpoint import whole_checkpoints
from drivers.packaged_model import resolve_model
from drivers.run_files import RunFiles


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One policy to evaluate."""

    name: str
    """``model``, ``step_00010`` or ``policy``: its folder where there are several."""
    step: int | None
    """The training step; None for a model that is no run's."""
    model: ServedModelConfig
    learner: Path | None = None
    """A checkpoint's learner state, to be exported first."""


def run_targets(
    files: RunFiles, model: ServedModelConfig, steps: Sequence[int] | None
) -> list[Target]:
    """Return the run's policies in the order of their steps; ``steps`` picks checkpoints.

    ConfigError when the run has none, or not the ones that are asked for.
    """
    config = files.read_config()
    targets = [
        Target(
            name=folder.name,
            step=int(folder.name.removeprefix("step_")),
            model=model,
            learner=folder / "learner",
        )
        for folder in whole_checkpoints(files.checkpoints)
    ]
    if (files.policy / "config.json").is_file():
        done = max([0, *(t.step for t in targets if t.step is not None)])
        step = max(done, config.loop.steps or 0)
        final = model.model_copy(update={"model": str(files.policy)})
        # The last checkpoint holds the same weights.
        targets = [t for t in targets if t.step != step]
        targets.append(Target(name="policy", step=step, model=final))
    if steps is not None:
        have = [t.step for t in targets]
        if missing := [s for s in steps if s not in have]:
            raise ConfigError(
                f"got --steps {missing}, which {files.folder} has no checkpoint of, wanted some of "
                f"{have} (loop.keep_checkpoints says how many a run keeps)"
            )
        targets = [t for t in targets if t.step in steps]
    if not targets:
        raise ConfigError(
            f"{files.folder}: got neither checkpoints nor a final policy, wanted a run that has "
            "trained"
        )
    return targets


@contextmanager
def ready_model(target: Target, files: RunFiles | None, work: Path) -> Iterator[ServedModelConfig]:
    """Return the config of the target's model, exported to ``work`` where it must be."""
    if target.learner is None or files is None:
        yield target.model
        return
    from actors.checkpoint_export import export_checkpoint

    folder = work / f"{target.name}.policy"
    policy = files.read_config().policy
    policy = policy.model_copy(update={"model": resolve_model(policy.model)})
    say(f"{target.name}: exporting the checkpoint")
    try:
        export_checkpoint(str(target.learner), policy, str(folder))
        yield target.model.model_copy(update={"model": str(folder)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
