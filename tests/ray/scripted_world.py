"""A judge and a rubric writer as a script behind a real endpoint, and a policy that never changes.

The judge knows one rule: a criterion "mentions WORD" has full score exactly when the response has
that word, "avoids WORD" when it has not, and any other text always. The writer's replies are given
by the test, one function a recipe. Every number in the recipe tests can therefore be worked out by
hand.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from core.records import GenerateRequest, Rollout, WeightUpdate
from tests.stub_openai import Reply

JUDGE, WRITER = "scripted-judge", "scripted-writer"

WORDS = ("alpha", "alpha beta", "alpha beta gamma delta", "alpha")
"""What rollout 0, 1, 2, 3 of every group says, beside words that are its own."""

Script = Callable[[str], str]
"""From a prompt to the writer's raw reply."""


class ScriptedWorld:
    """Answers the stub endpoint; counts calls by kind."""

    def __init__(self) -> None:
        self.script: Script = no_script
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def start_over(self, script: Script) -> None:
        """Forget the counts and take another writer."""
        self.script = script
        self.calls.clear()

    def answer(self, body: dict[str, Any], _: int) -> Reply:
        """Return the scripted reply to one request."""
        prompt = body["messages"][-1]["content"]
        if body["model"] == WRITER:
            kind, text = "writer", self.script(prompt)
        elif sections(prompt, "R0"):
            kind, text = "rescore", _rescored(prompt)
        else:
            kind, text = "judge", _judged(prompt)
        with self._lock:
            self.calls[kind] += 1
        return Reply(text=text)


class ScriptedPool:
    """Rollout ``i`` says ``WORDS[i]``, and who it is, whatever the policy's version."""

    def __init__(self, tag: str = "") -> None:
        self.version = 0
        self._tag = tag

    async def generate(self, request: GenerateRequest) -> Rollout:
        who = f"{self._tag}{request.query_id}v{request.visit}i{request.index}"
        return Rollout(
            query_id=request.query_id,
            visit=request.visit,
            index=request.index,
            response=f"{WORDS[request.index % len(WORDS)]} {request.query_id} by {who}",
            finish_reason="stop",
            prompt_token_ids=(1, 2),
            token_ids=(3, 4, 5),
            rollout_logprobs=(-0.1, -0.2, -0.3),
            policy_version_first=self.version,
            policy_version_last=self.version,
        )

    async def load_weights(self, update: WeightUpdate) -> None:
        self.version = update.version


def no_script(prompt: str) -> str:
    """For recipes that must not ask the writer."""
    raise AssertionError(f"the writer was asked: {prompt[:500]}")


def sections(prompt: str, label: str) -> list[str]:
    """Return the bodies of all fenced sections of this name."""
    found = re.finditer(
        rf"^<{re.escape(label)} (?P<mark>[0-9a-f]{{10}})>\n(?P<body>.*?)\n</{re.escape(label)} "
        r"(?P=mark)>$",
        prompt,
        re.M | re.S,
    )
    return [m.group("body") for m in found]


def is_met(criterion: str, response: str) -> bool:
    """The one rule of the scripted judge."""
    match = re.search(r"(mentions|avoids) (\w+)", criterion)
    return match is None or (match[2] in response.split()) == (match[1] == "mentions")


def _asked(prompt: str) -> list[dict[str, Any]]:
    """The criteria of a prompt that asks by ids."""
    lines = (line for line in prompt.splitlines() if line.startswith('{"id": "c'))
    return [json.loads(line) for line in lines]


def _judged(prompt: str) -> str:
    (response,) = sections(prompt, "response")
    asked = _asked(prompt)
    if asked:
        scores = {
            c["id"]: {"reason": "seen", "score": c["max"] * is_met(c["criterion"], response)}
            for c in asked
        }
        return json.dumps(scores)
    listed = re.search(r"^\[\n.*?^\]$", prompt, re.M | re.S)
    assert listed, prompt
    return json.dumps({text: str(int(is_met(text, response))) for text in json.loads(listed[0])})


def _rescored(prompt: str) -> str:
    responses: list[str] = []
    while found := sections(prompt, f"R{len(responses)}"):
        responses += found
    rows = [
        {
            "id": c["id"],
            "scores": [
                {"rollout_id": f"R{i}", "reason": "seen", "score": c["max"] * is_met(text, r)}
                for i, r in enumerate(responses)
            ],
        }
        for c in _asked(prompt)
        for text in (c["criterion"],)
    ]
    return json.dumps({"criteria": rows})
