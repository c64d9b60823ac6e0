"""What a judge is asked in the benchmark of its prefix cache, and the layouts that are compared.

Requests, rubrics and responses are made by code from a few fixed texts, the same in every run:
8 requests (further ones differ from their first words on), 6 to 8 criteria of a sentence or two,
groups of 8 responses of 150 to 400 words. Prompts are built by the product's own prompt builder;
``response_first`` is the product's prompt with the response moved before the criteria.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from core.grading.prompt import judge_prompt, rescore_prompt
from core.records import JudgeRequest, RescoreRequest
from core.rubric import Criterion
from serve.identity import RESCORE_TEMPLATE
from serve.prompts import load_prompt

GROUP_SIZE = 8
NUM_REPLACED = 2
"""Criteria that an edit of RARE replaces here: a quarter to a third of a rubric."""
Layout = Literal["criteria_first", "response_first"]
LAYOUTS: tuple[Layout, ...] = ("criteria_first", "response_first")
"""The product's own layout first."""

_REQUESTS = (
    "My landlord keeps my deposit although I left the flat clean and have photos of every room. "
    "The contract says two months, it has been four. Write the letter that I should send, firm but "
    "polite, and tell me in a few lines below it what I can do if there is no answer.",
    "I teach twelve-year-olds and want to explain why the moon shows phases without any equipment "
    "but a lamp and a ball. Give me a plan for a lesson of forty minutes, with the questions that "
    "the children will ask and what I should answer.",
    "Our small bakery loses money on Mondays. We sell bread, cakes and coffee, have three people "
    "behind the counter and an oven that needs an hour to heat. What do we try first, what does "
    "it cost, and how do we see after a month whether it helped?",
    "Write the first page of a short story. A lighthouse keeper finds that the lamp was lit by "
    "somebody else on the night he was late. No ghosts, no dialogue, and the weather must matter.",
    "I have a Python script that reads a large CSV file line by line and takes an hour. I cannot "
    "use a database. Explain how I find out where the time goes, and name the changes that usually "
    "help most, in the order in which I should try them.",
    "My father is seventy-four, was told that his blood pressure is a little high, and refuses to "
    "change anything. How can I talk with him about salt and walking without a quarrel? Give "
    "me sentences that I can really say.",
    "Summarise the arguments for and against a speed limit in towns of thirty kilometres an hour, "
    "for a council that has to vote next week. One page at most, both sides fairly, and say which "
    "facts are still disputed.",
    "We walk four days in the mountains in September with two children of eight and ten. Make a "
    "list of what goes into which backpack, with weights, and say what we should leave at home.",
)
_CRITERIA = (
    "Answers every part of the request: nothing that was asked for is left out or only mentioned.",
    "Names at least two concrete figures, dates or amounts that the reader can act on, and says "
    "where each of them comes from.",
    "Keeps to the limits that the request sets in length and form, and to what it rules out.",
    "Uses plain words throughout; a term that the reader may not know is explained where it is "
    "first used.",
    "Orders its advice by what matters most, and says why the first step comes first.",
    "Says openly what is uncertain or depends on circumstances, without hedging every sentence.",
    "Speaks to the person who asked: tone and examples fit the situation that is described.",
    "Contains no statement that contradicts another one in the same response.",
    "Closes with something that the reader can do today, in one sentence.",
    "Gives at least one example that is specific to the case and would not fit another answer.",
)
_REPLACEMENTS = (
    "Weighs at least one alternative against the advice that it gives, and says in one sentence "
    "under which circumstances the alternative would be the better choice.",
    "Foresees the objection that this reader is likely to raise and answers it before the end, "
    "without repeating what was said before.",
)
_TEXT = """
the a this that first then because however plan people day time place letter answer question
water light road small large simple clear early later often never should could would need keep
give take find show ask tell write walk read begin end before after with without between
under over about two three four money week month child teacher town mountain oven lamp file
line
"""
_WORDS = _TEXT.split()


@dataclass(frozen=True, kw_only=True)
class Group:
    """One query's request, its rubric and the responses of one visit."""

    query_id: str
    request: str
    criteria: tuple[Criterion, ...]
    responses: tuple[str, ...]

    def judge_requests(self) -> list[JudgeRequest]:
        """Return what scoring the group asks, one request a response."""
        return [
            JudgeRequest(
                query_id=self.query_id, prompt=self.request, response=r, criteria=self.criteria
            )
            for r in self.responses
        ]

    def replaced(self) -> tuple[Criterion, ...]:
        """Return the new criteria of an edit, under the ids of those that they replace."""
        last = self.criteria[-NUM_REPLACED:]
        return tuple(
            c.model_copy(update={"text": text}) for c, text in zip(last, _REPLACEMENTS, strict=True)
        )

    def rescore_request(self) -> RescoreRequest:
        """Return what rescoring the group by the replaced criteria asks."""
        return RescoreRequest(
            query_id=self.query_id,
            prompt=self.request,
            responses=self.responses,
            criteria=self.replaced(),
        )


def make_groups(count: int, seed: int) -> list[Group]:
    """Return so many groups of different queries."""
    return [_group(number, random.Random(f"{seed} {number}")) for number in range(count)]


def _group(number: int, chance: random.Random) -> Group:
    request = _REQUESTS[number % len(_REQUESTS)]
    if number >= len(_REQUESTS):
        request = f"Reader {number // len(_REQUESTS)} of column {number} asks. {request}"
    texts = chance.sample(_CRITERIA, 6 + number % 3)
    criteria = tuple(
        Criterion(id=f"k{i}", text=text, max=1 + i % 2) for i, text in enumerate(texts, start=1)
    )
    responses = tuple(_response(chance) for _ in range(GROUP_SIZE))
    return Group(query_id=f"q{number}", request=request, criteria=criteria, responses=responses)


def _response(chance: random.Random) -> str:
    left = chance.randint(150, 400)
    sentences: list[str] = []
    while left > 0:
        length = min(left, chance.randint(6, 18))
        sentences.append(" ".join(chance.choices(_WORDS, k=length)).capitalize() + ".")
        left -= length
    return "\n\n".join(" ".join(sentences[i : i + 5]) for i in range(0, len(sentences), 5))


def template(layout: Layout) -> str:
    """Return the judge's template in this layout."""
    text = load_prompt("judge_ids")
    if layout == "criteria_first":
        return text
    criteria, response = _section(text, "{{criteria}}"), _section(text, "{{response}}")
    return text.replace(criteria, "\0").replace(response, criteria).replace("\0", response)


def _section(text: str, placeholder: str) -> str:
    """Return the paragraph of this placeholder, with its heading."""
    return next(part for part in text.split("\n\n") if placeholder in part)


def scoring_prompts(group: Group, layout: Layout) -> list[str]:
    """Return one prompt a response, on all criteria."""
    return [judge_prompt(template(layout), r, style="ids") for r in group.judge_requests()]


def single_prompts(group: Group, layout: Layout) -> list[str]:
    """Return one prompt a response and criterion (``per_criterion``)."""
    requests = [
        replace(request, criteria=(c,))
        for request in group.judge_requests()
        for c in group.criteria
    ]
    return [judge_prompt(template(layout), r, style="ids") for r in requests]


def joint_prompts(group: Group) -> list[str]:
    """Return the one prompt that rescores all responses, as the product asks it."""
    return [rescore_prompt(load_prompt(RESCORE_TEMPLATE), group.rescore_request())]


def apart_prompts(group: Group, layout: Layout) -> list[str]:
    """Return prompts that rescore the responses one by one with the judge's own prompt."""
    requests = [replace(r, criteria=group.replaced()) for r in group.judge_requests()]
    return [judge_prompt(template(layout), r, style="ids") for r in requests]


def words(texts: Sequence[str]) -> list[int]:
    """Return how many words each text has."""
    return [len(text.split()) for text in texts]
