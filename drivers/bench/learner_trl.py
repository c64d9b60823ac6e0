"""TRL's arm: its own ``GRPOTrainer`` and training loop on completions that are handed to it.

Only generation and rewards are replaced: ``_generate_and_score_completions`` answers with the
prepared batch in TRL's padded form (prompts left, completions right). Everything else is TRL's: the
sampler, gradient accumulation, Accelerate's bf16 autocast, its fused log-prob head, loss, gradient
clipping, AdamW. With one iteration a batch and aligned steps TRL computes no old log-probs by
default.
"""

import importlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from core.config import LearnerConfig
from core.records import TrainBatch, TrainingSample
from drivers.bench.learner_arms import measured


@dataclass(frozen=True, kw_only=True, slots=True)
class TrlSetup:
    """One GRPOTrainer."""

    model: str
    batch: TrainBatch
    micro_batch: int
    """Sequences in one forward and backward pass; accumulated to one optimizer step a batch."""
    learner: LearnerConfig
    """Optimizer and clip numbers, the same as ours."""
    gradient_checkpointing: bool = False


def train_trl(connection: Connection, setup: TrlSetup) -> None:
    """Run in a process of its own: build the trainer, then one optimizer step for every request."""
    with tempfile.TemporaryDirectory(prefix="ratchet-trl-") as folder:
        trainer = _trainer(setup, folder)
        trainer.add_callback(_step_callback(connection))
        connection.send("ready")
        try:
            trainer.train()
        except EOFError:  # the benchmark hung up: no more steps
            return


def _trainer(setup: TrlSetup, folder: str) -> Any:
    import torch
    from datasets import Dataset  # pyright: ignore[reportMissingImports]  (bench extra)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trl: Any = importlib.import_module("trl")  # the bench extra: not there for every type check
    samples = [sample for group in setup.batch.groups for sample in group]
    prepared = padded_batch(samples, pad_token_id=0)

    class PreparedTrainer(trl.GRPOTrainer):
        """GRPOTrainer whose completions and advantages exist already."""

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            del inputs
            return dict(prepared)

    model = AutoModelForCausalLM.from_pretrained(
        setup.model, dtype=torch.float32, attn_implementation="sdpa"
    )
    rows = [{"prompt": "unused"} for _ in setup.batch.groups]
    return PreparedTrainer(
        model=model,
        reward_funcs=_no_reward,
        args=_arguments(setup, folder, len(samples)),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(setup.model),
    )


def _arguments(setup: TrlSetup, folder: str, num_samples: int) -> Any:
    learner = setup.learner
    return importlib.import_module("trl").GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=learner.bf16,
        per_device_train_batch_size=setup.micro_batch,
        gradient_accumulation_steps=num_samples // setup.micro_batch,
        num_generations=len(setup.batch.groups[0]),
        num_iterations=1,
        max_completion_length=max(len(s.token_ids) for g in setup.batch.groups for s in g),
        max_steps=1_000,
        beta=learner.kl_coef,
        epsilon=learner.clip_low,
        epsilon_high=learner.clip_high,
        temperature=1.0,
        loss_type="dapo",
        learning_rate=learner.lr,
        lr_scheduler_type="constant",
        adam_beta1=learner.betas[0],
        adam_beta2=learner.betas[1],
        weight_decay=learner.weight_decay,
        max_grad_norm=learner.max_grad_norm,
        gradient_checkpointing=setup.gradient_checkpointing,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def _step_callback(connection: Connection) -> Any:
    from transformers import TrainerCallback

    class OnRequest(TrainerCallback):
        """Waits for a request before each optimizer step and measures until its end."""

        def on_step_begin(self, *arguments: Any, **kwargs: Any) -> None:
            connection.recv()
            self.running = measured(connection)
            self.running.__enter__()

        def on_step_end(self, *arguments: Any, **kwargs: Any) -> None:
            self.running.__exit__(None, None, None)

    return OnRequest()


def padded_batch(samples: Sequence[TrainingSample], pad_token_id: int) -> dict[str, Any]:
    """The samples as TRL's generation step returns them: one width for the whole batch."""
    import torch

    widest = max(len(sample.prompt_token_ids) for sample in samples)
    longest = max(len(sample.token_ids) for sample in samples)
    prompts = torch.full((len(samples), widest), pad_token_id)
    responses = torch.full((len(samples), longest), pad_token_id)
    prompt_mask, response_mask = torch.zeros_like(prompts), torch.zeros_like(responses)
    for row, sample in enumerate(samples):
        start = widest - len(sample.prompt_token_ids)
        prompts[row, start:] = torch.tensor(sample.prompt_token_ids)
        prompt_mask[row, start:] = 1
        responses[row, : len(sample.token_ids)] = torch.tensor(sample.token_ids)
        response_mask[row, : len(sample.token_ids)] = 1
    return {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": responses,
        "completion_mask": response_mask,
        "advantages": torch.tensor([sample.advantage for sample in samples]),
        "num_items_in_batch": response_mask.sum(),
    }


def _no_reward(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """Never called: the rewards are in the prepared batch as advantages."""
    return [0.0] * len(completions)
