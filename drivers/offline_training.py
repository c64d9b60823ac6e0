"""TRL trains the policy: the trainer's arguments from our config, and the policy it leaves.

The only file that knows TRL, which is imported when it is needed. Weights are fp32 under bf16
autocast (or DeepSpeed's bf16 over fp32 masters), the loss is on the response's tokens as the chat
template renders them, rows longer than ``policy.max_model_len`` lose their end. Under
``accelerate launch`` every process runs this; the first one writes.
"""

import logging
import os
import shutil
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from transformers import PreTrainedTokenizerBase
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from actors.chat_template import policy_tokenizer
from core.config_offline import DpoMethod, OfflineConfig, OfflineLearnerConfig
from core.deepspeed_config import trainer_deepspeed_config
from core.errors import ConfigError
from drivers.config_file import dump_config
from drivers.offline_data import OfflineData, trl_row
from drivers.offline_plan import DEEPSPEED_PRESETS, num_processes
from drivers.offline_recorder import OfflineRecorder
from drivers.offline_run import Start
from drivers.offline_signals import StopSignals
from drivers.packaged_model import resolve_model
from drivers.run_files import RunFiles
from drivers.trackers import Trackers, open_trackers

log = logging.getLogger("ratchet")


@dataclass(frozen=True, kw_only=True)
class Done:
    """How training ended."""

    step: int
    signal: int | None
    """The signal that ended it with a checkpoint; None when it reached its last step."""
    num_at_limit: int
    """Training rows that fill ``policy.max_model_len``: cut, or exactly that long."""
    num_without_room: int
    """Training rows left out, since their prompt alone fills it."""


def train(
    config: OfflineConfig, data: OfflineData, files: RunFiles, start: Start | None, began: float
) -> Done:
    """Train from ``start`` (None in all processes but the first) and write ``policy/``.

    ``began`` is the monotonic time at which this part of the run began. Raises ConfigError before
    the first step, RunStopped for a loss that is no number.
    """
    _quiet()
    _check_devices()
    _join_alone(config)
    model = os.path.expanduser(resolve_model(config.policy.model))
    tokenizer = policy_tokenizer(
        model,
        trust_remote_code=config.policy.trust_remote_code,
        chat_template=config.policy.chat_template,
    )
    args = _arguments(config, files, has_val=bool(data.val))
    begun = _shared(start)
    args.eval_on_start = bool(data.val) and begun.checkpoint is None
    trainer = _trainer(config, model, tokenizer, args, data)
    at_limit, without_room = _check_lengths(config, trainer, data)
    trackers = _trackers(config, files, begun) if start is not None else None
    with StopSignals() as signals:
        recorder = OfflineRecorder(
            files,
            trackers,
            signals.agreed,
            lambda: begun.wall_s + time.monotonic() - began,
            data.fingerprint,
        )
        trainer.add_callback(recorder)
        trainer.train(resume_from_checkpoint=begun.checkpoint)
    if trackers is not None:
        trackers.close()
    is_cut = trainer.state.global_step < trainer.state.max_steps
    if not is_cut:
        save_policy(trainer, tokenizer, files.policy)
    return Done(
        step=trainer.state.global_step,
        signal=recorder.stopped_by if is_cut else None,
        num_at_limit=at_limit,
        num_without_room=without_room,
    )


def save_policy(trainer: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the policy in bf16 as a Hugging Face folder, whole or not at all.

    Every process must call it: under ZeRO-3 each holds a part of the weights.
    """
    is_parted = is_deepspeed_zero3_enabled()
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped) if is_parted else None
    if not trainer.is_world_process_zero():
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    if not is_parted:  # else whole weights are there as bf16 already
        model.to(torch.bfloat16)
    model.config.use_cache = True  # gradient checkpointing turns it off
    end = turn_end_id(tokenizer)
    known = model.generation_config.eos_token_id
    ends = known if isinstance(known, list) else [] if known is None else [known]
    if end is not None and end not in ends:  # a base model's own end is another token
        model.generation_config.eos_token_id = [*ends, end]
    partial = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial, state_dict=state)
    tokenizer.save_pretrained(partial)
    for path in partial.iterdir():  # safetensors writes files that only their owner can read
        path.chmod(0o644)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def turn_end_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the special token by which the chat template ends an answer; None if it has none."""
    answer = "the answer itself"
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": answer}],
        tokenize=False,
    )
    after = str(rendered).rpartition(answer)[2]
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    return next((i for i in cast("list[int]", ids) if i in tokenizer.all_special_ids), None)


# ------------------------------------------------------------------ TRL's trainer
def _trainer(
    config: OfflineConfig,
    model: str,
    tokenizer: PreTrainedTokenizerBase,
    args: Any,
    data: OfflineData,
) -> Any:
    from datasets import Dataset  # pyright: ignore[reportMissingImports]  (extra `offline`)
    from transformers import PrinterCallback
    from trl.trainer.dpo_trainer import DPOTrainer  # pyright: ignore[reportMissingImports]
    from trl.trainer.sft_trainer import SFTTrainer  # pyright: ignore[reportMissingImports]

    train, val = (
        Dataset.from_list([trl_row(e) for e in side]) if side else None
        for side in (data.train, data.val)
    )
    kind: Any = DPOTrainer if isinstance(config.offline, DpoMethod) else SFTTrainer
    trainer = kind(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=val,
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)  # the recorder says what there is to say
    return trainer


def _arguments(config: OfflineConfig, files: RunFiles, *, has_val: bool) -> Any:
    """Return TRL's config of the method; making it joins the processes of the run."""
    from trl.trainer.dpo_config import DPOConfig  # pyright: ignore[reportMissingImports]
    from trl.trainer.sft_config import SFTConfig  # pyright: ignore[reportMissingImports]

    learner, method = config.learner, config.offline
    shared: dict[str, Any] = {
        "output_dir": str(files.checkpoints),
        "seed": config.seed,
        "data_seed": config.seed,
        "num_train_epochs": config.loop.epochs,
        "per_device_train_batch_size": learner.micro_batch_size,
        "per_device_eval_batch_size": learner.micro_batch_size,
        "gradient_accumulation_steps": learner.batch_size
        // (learner.micro_batch_size * num_processes()),
        "learning_rate": learner.lr,
        **_schedule(learner),
        "adam_beta1": learner.betas[0],
        "adam_beta2": learner.betas[1],
        "weight_decay": learner.weight_decay,
        "max_grad_norm": learner.max_grad_norm,
        "bf16": learner.bf16,
        "gradient_checkpointing": learner.gradient_checkpointing,
        "deepspeed": _deepspeed(learner),
        "use_cpu": not torch.cuda.is_available(),
        "max_length": config.policy.max_model_len,
        "trust_remote_code": config.policy.trust_remote_code,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "eval_strategy": "epoch" if has_val else "no",
        "save_strategy": "epoch",
        "save_total_limit": config.loop.keep_checkpoints,
        "report_to": "none",
        "disable_tqdm": True,
    }
    if isinstance(method, DpoMethod):
        return DPOConfig(
            **shared, beta=method.beta, precompute_ref_log_probs=method.precompute_reference
        )
    return SFTConfig(**shared, completion_only_loss=True)


def _schedule(learner: OfflineLearnerConfig) -> dict[str, Any]:
    kind, more = learner.schedule, {}
    name = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}[kind]
    if learner.min_lr_frac > 0:
        name, more = "cosine_with_min_lr", {"min_lr_rate": learner.min_lr_frac}
    return {
        "lr_scheduler_type": name,
        "lr_scheduler_kwargs": more,
        "warmup_steps": learner.warmup_frac,  # below 1 the trainer reads it as a share
    }


def _deepspeed(learner: OfflineLearnerConfig) -> dict[str, Any] | str | None:
    given = learner.deepspeed
    if given in DEEPSPEED_PRESETS:
        return trainer_deepspeed_config(cast("Literal[2, 3]", int(given[-1])))
    return None if given is None else os.path.expanduser(given)


def _shared(start: Start | None) -> Start:
    """Return the first process's start in every process."""
    from accelerate.utils import broadcast_object_list

    box: list[Start | None] = [start]
    broadcast_object_list(box)
    begun = box[0]
    assert begun is not None, "the first process has a start"
    return begun


# ------------------------------------------------------------------ checks
def _check_devices() -> None:
    found = torch.cuda.device_count()
    if found > 1 and num_processes() == 1:
        raise ConfigError(
            f"got {found} GPUs and one process, wanted a process a GPU: start with `accelerate "
            f"launch --num_processes {found} -m drivers.offline ...`, or choose one GPU by "
            "CUDA_VISIBLE_DEVICES=0"
        )


def _join_alone(config: OfflineConfig) -> None:
    """Let DeepSpeed start in a process that no launcher started: it wants a group, of one."""
    if config.learner.deepspeed is None or "WORLD_SIZE" in os.environ:
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="1",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )


def _check_lengths(config: OfflineConfig, trainer: Any, data: OfflineData) -> tuple[int, int]:
    """Return how many training rows fill the limit, and how many have a prompt that does."""
    limit = config.policy.max_model_len
    for name, kept in (("data.train", trainer.train_dataset), ("data.eval", trainer.eval_dataset)):
        if kept is not None and len(kept) == 0:
            raise ConfigError(
                f"got no row of {name} with room for a response (each prompt has {limit} tokens or "
                "more), wanted some: raise policy.max_model_len"
            )
    if isinstance(config.offline, DpoMethod):
        rows = trainer.train_dataset.select_columns(["prompt_ids", "chosen_ids", "rejected_ids"])
        lengths = (
            len(r["prompt_ids"]) + max(len(r["chosen_ids"]), len(r["rejected_ids"])) for r in rows
        )
    else:
        rows = trainer.train_dataset.select_columns(["input_ids"])
        lengths = (len(row["input_ids"]) for row in rows)
    at_limit = sum(length >= limit for length in lengths)
    without_room = len(data.train) - len(trainer.train_dataset)
    if at_limit:
        log.info("%d rows fill policy.max_model_len=%d: longer ones are cut", at_limit, limit)
    if without_room:
        log.info("%d rows are left out: their prompt alone fills policy.max_model_len",
                 without_room)  # fmt: skip
    return at_limit, without_room


def _trackers(config: OfflineConfig, files: RunFiles, start: Start) -> Trackers:
    import yaml

    tree = yaml.safe_load(dump_config(config))
    return open_trackers(
        config.trackers, files.tensorboard, config.name, tree, first_step=start.step + 1
    )


class _Once(logging.Filter):
    """Lets one message of a kind through: TRL repeats its notes for every row."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = str(record.msg)[:80]
        is_new = kind not in self._seen
        self._seen.add(kind)
        return is_new


def _quiet() -> None:
    """Progress bars of the libraries on a terminal only, and each of their notes once."""
    for name in ("trl.trainer.sft_trainer", "trl.trainer.dpo_trainer"):
        logging.getLogger(name).addFilter(_Once())
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    if not sys.stderr.isatty():
        from datasets import disable_progress_bars  # pyright: ignore[reportMissingImports]
        from transformers.utils import logging as hf_logging

        disable_progress_bars()
        hf_logging.disable_progress_bar()
