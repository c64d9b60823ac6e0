"""TRL's side of the end-to-end benchmark: ``GRPOTrainer`` on the same work, a line a step.

``python -m drivers.bench.end_to_end_trl WORK.json STEPS.jsonl``. fp32 weights under bf16 autocast,
one optimizer step a batch, KL 0 (no reference model), its own generation. The reward function is
the rules that our judge runs.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drivers.bench.end_to_end_work import Work, queries, rewards


def main(arguments: Sequence[str]) -> int:
    """Train, writing the step lines."""
    asked, found = arguments
    work = Work.from_json(json.loads(Path(asked).read_text(encoding="utf-8")))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["WANDB_DISABLED"] = "true"
    os.environ["OMP_NUM_THREADS"] = str(work.num_threads)
    _train(work, Path(found))
    return 0


def _train(work: Work, found: Path) -> None:
    import torch
    from datasets import Dataset  # pyright: ignore[reportMissingImports]  (bench extra)
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.trainer.grpo_trainer import GRPOTrainer  # pyright: ignore[reportMissingImports]  (bench extra)

    torch.set_num_threads(work.num_threads)
    torch.manual_seed(work.seed)
    tokenizer = AutoTokenizer.from_pretrained(work.model)
    model = AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.float32)
    rows = [{"prompt": [m.model_dump() for m in query.messages]} for query in queries()]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[reward],
        args=_args(work, found.parent),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    clock = PhaseClock(trainer)
    trainer.add_callback(_callback(found, clock, trainer))
    trainer.train()


def _args(work: Work, folder: Path) -> Any:
    from trl.trainer.grpo_config import GRPOConfig  # pyright: ignore[reportMissingImports]  (bench extra)

    return GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=work.trl_micro_batch,
        gradient_accumulation_steps=work.rollouts_per_step // work.trl_micro_batch,
        num_generations=work.group_size,
        max_completion_length=work.max_new_tokens,
        temperature=1.0,
        top_k=0,
        beta=0.0,
        num_iterations=1,
        learning_rate=work.lr,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        bf16=True,
        gradient_checkpointing=False,
        use_cpu=True,
        max_steps=work.warmup_steps + work.measured_steps,
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_num_workers=0,
        seed=work.seed,
    )


def reward(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float | None]:
    """TRL's reward function: the rubric's value, decided by the rules."""
    texts = ["\n\n".join(f"{m['role']}: {m['content']}" for m in prompt) for prompt in prompts]
    return [*rewards(texts, [completion[0]["content"] for completion in completions])]


class PhaseClock:
    """Adds up what a step spends in generation and in scoring (which contains the first)."""

    def __init__(self, trainer: Any) -> None:
        self.seconds: dict[str, float] = {}
        self.num_tokens = 0
        for name in ("_generate", "_generate_and_score_completions"):
            setattr(trainer, name, self._timed(name, getattr(trainer, name)))

    def _timed(self, name: str, function: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = function(*args, **kwargs)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
            if name == "_generate":
                self.num_tokens += sum(len(ids) for ids in result[1])
            return result

        return timed

    def line(self, step: int, work_rollouts: int) -> dict[str, float]:
        """Return the step's line and start anew."""
        scored = self.seconds.get("_generate_and_score_completions", 0.0)
        line = {
            "step": step,
            "time": time.time(),
            "response_length/mean": self.num_tokens / work_rollouts,
            "timing_s/gen": self.seconds.get("_generate", 0.0),
            "timing_s/reward": scored - self.seconds.get("_generate", 0.0),
        }
        self.seconds, self.num_tokens = {}, 0
        return line


def _callback(found: Path, clock: PhaseClock, trainer: Any) -> Any:
    from transformers import TrainerCallback

    rollouts = trainer.args.generation_batch_size

    class StepLines(TrainerCallback):
        """Writes a line at the end of each step."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """See above."""
            with found.open("a", encoding="utf-8") as sink:
                sink.write(json.dumps(clock.line(state.global_step, rollouts)) + "\n")

    return StepLines()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
