"""A tiny tied-embedding Llama with a tokenizer, made on the spot, and samples for it."""

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from core.records import TrainBatch, TrainingSample

VOCABULARY = 300
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }}{% endfor %}"


def write_tiny_policy(folder: Path) -> str:
    """Write the model (hidden 64, 2 layers, grouped queries) as a Hugging Face folder."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {"<bos>": 0, "<eos>": 1, **{f"w{i}": i for i in range(2, VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>", bos_token="<bos>"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return str(folder)


def tiny_samples(num_groups: int, group_size: int, seed: int = 0) -> list[list[TrainingSample]]:
    """Groups of samples of many lengths with made-up log-probs and advantages.

    As in a run, all samples of a group begin with the same prompt.
    """
    chance = random.Random(seed)
    return [_group(chance, f"q{group}", group_size) for group in range(num_groups)]


def tiny_batch(
    step: int = 1, *, num_groups: int = 4, group_size: int = 3, is_off_policy: bool = False
) -> TrainBatch:
    """A batch of ``tiny_samples``; the step seeds them."""
    groups = tiny_samples(num_groups, group_size, seed=step)
    return TrainBatch(
        step=step, groups=tuple(tuple(group) for group in groups), is_off_policy=is_off_policy
    )


def _group(chance: random.Random, query_id: str, size: int) -> list[TrainingSample]:
    prompt = tuple(chance.randrange(VOCABULARY) for _ in range(chance.randint(1, 9)))
    return [_sample(chance, query_id, index, prompt) for index in range(size)]


def _sample(
    chance: random.Random, query_id: str, index: int, prompt: tuple[int, ...]
) -> TrainingSample:
    length = chance.randint(1, 12)
    return TrainingSample(
        query_id=query_id,
        index=index,
        prompt_token_ids=prompt,
        token_ids=tuple(chance.randrange(VOCABULARY) for _ in range(length)),
        rollout_logprobs=tuple(-chance.uniform(4.0, 8.0) for _ in range(length)),
        advantage=chance.uniform(-1.5, 1.5),
    )
