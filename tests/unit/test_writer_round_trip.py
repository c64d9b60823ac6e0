"""What the rule-based writer replies is read by the methods as a usable edit."""

import random

import pytest

from core.config import RewardConfig
from core.config_evolution import CareConfig, RareConfig
from core.evolution.care import contrast_request, read_contrast
from core.evolution.rare import read_replacements, replacement_request
from core.records import Completion, GradedGroup
from core.rubric import Criterion, Rubric
from core.rules.replacements import write_replacements
from core.rules.verifiers import is_decidable
from core.rules.writer import write_contrast
from tests.unit.method_builders import completion, graded_group

WORDS = Criterion(
    id="c1", text="Each mention of one of these words earns a point: apple, river.", max=2
)
SHORT = Criterion(id="c2", text="The response has at most 80 words.")
ASKS = Criterion(id="c3", text="The response asks a question, closed by a question mark.")
RUBRIC = Rubric(criteria=(WORDS, SHORT, ASKS))
ANCHOR = (
    "The old river runs past our house, and in autumn the apple tree drops its fruit into it. "
    "Would you not like to sit there with me for an evening and watch the water go by?"
)
HACKED = "apple river apple river apple river apple river apple river apple river apple river?"
HONEST = "We walked along the river until we found an apple. Was it not a fine day for that?"


def group() -> GradedGroup:
    full = {"c1": 2, "c2": 1, "c3": 1}
    return graded_group(RUBRIC, [full, full], responses=[HACKED, HONEST], anchor=ANCHOR)


def test_a_repetition_hack_becomes_a_resist_criterion_with_a_real_quote() -> None:
    care, reward = CareConfig(), RewardConfig()
    request = contrast_request(group(), care, reward)
    assert request is not None
    evolution = read_contrast(completion(write_contrast(request)), request, group(), care, reward)
    (edit,) = evolution.edits
    assert (edit.status, edit.branch) == ("accepted", "adaptive")
    assert edit.new is not None
    assert edit.new.is_resist
    assert is_decidable(edit.new)
    assert edit.evidence.quotes
    assert all(quote in HACKED for quote in edit.evidence.quotes)
    assert evolution.num_restored == 0


@pytest.mark.parametrize("polarity", ["negative", "positive", "mixed"])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_replacements_pass_every_check_at_the_first_try(polarity: str, budget: int) -> None:
    rare = RareConfig.model_validate({"polarity": polarity, "budget": budget})
    request = replacement_request(group(), rare)
    assert request is not None
    items = read_replacements(completion(write_replacements(request)), request).items
    assert len(items) == budget
    assert all(is_decidable(r.criterion) for r in items)
    if polarity == "mixed" and budget > 1:
        assert {r.polarity for r in items} == {"negative", "positive"}


def test_no_damaged_reply_raises_or_loses_a_criterion() -> None:
    random_ = random.Random(11)
    care, reward = CareConfig(), RewardConfig()
    request = contrast_request(group(), care, reward)
    assert request is not None
    whole = write_contrast(request)
    for _ in range(400):
        chars = list(whole)
        for _ in range(random_.randrange(1, 6)):
            place = random_.randrange(len(chars))
            chars[place : place + random_.randrange(4)] = random_.choice(
                ["", '"', "[", "]", "\\", "<", "/", "[llm] ", "\\ud800", "\n", "<FINAL_SET>"]
            )
        reply = Completion(
            text="".join(chars)[: random_.randrange(len(chars))]
            if random_.random() < 0.3
            else "".join(chars),
            finish_reason=random_.choice(["stop", "length"]),
            model="m",
        )
        evolution = read_contrast(reply, request, group(), care, reward)
        rewritten = {e.old.id for e in evolution.edits if e.status == "accepted" and e.old}
        for old in RUBRIC.criteria:
            assert old.id in rewritten or evolution.rubric.criterion(old.id) == old
