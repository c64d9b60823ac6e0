"""Text of a policy is data: no hostile rollout makes an edit or puts markup into a page.

The writer of each method quotes the text in its analysis, copies it, or gives nothing else: what is
adopted is the writer's own change or none. The report shows the text and has not one tag more.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from core.config import RewardConfig
from core.config_evolution import CareConfig, RareConfig
from core.errors import WriterReplyError
from core.evolution.care import contrast_request, read_contrast
from core.evolution.care_prompt import contrast_prompt
from core.evolution.rare import read_replacements, replacement_request
from core.evolution.rare_prompt import replacement_prompt
from core.grading.visible import visible_response
from core.records import Evolution, GradedGroup
from core.rubric import Criterion, Rubric
from core.templates import fenced
from drivers.report_charts import draw
from drivers.report_data import ReportData, read_report_data
from drivers.report_page import report_page
from drivers.report_view import run_view
from serve.prompts import load_prompt
from tests.run_example import make_run
from tests.unit.hostile import HOSTILE, RUBRIC, Hostile
from tests.unit.method_builders import completion, graded_group

each_hostile = pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: f"{h.name} {h.kind}")
CARE, REWARD, RARE = CareConfig(), RewardConfig(), RareConfig(budget=1)
_PLAIN = "A plain answer."


def group_with(response: str) -> GradedGroup:
    """The hostile rollout leads (full score); the other two are honest and have it too."""
    full = {"pace": 2, "end": 1, "pad": 1}
    return graded_group(RUBRIC, [full] * 3, responses=[response, "The Rhine?", "The Oder?"])


# ------------------------------------------------------------------ prompts of writers
@each_hostile
@pytest.mark.parametrize(
    ("render", "label"),
    [
        (lambda g: contrast_prompt(load_prompt("care_evolve"), _contrast(g)), "answer"),
        (lambda g: replacement_prompt(load_prompt("rare_replace"), _replacement(g)), "R0"),
    ],
    ids=["care", "rare"],
)
def test_a_writers_prompt_keeps_its_parts(
    hostile: Hostile, render: Callable[[GradedGroup], str], label: str
) -> None:
    section = fenced(visible_response(hostile.text), label)
    prompt, benign = render(group_with(hostile.text)), render(group_with(_PLAIN))
    assert prompt.count(section) == 1
    assert prompt.replace(section, "@", 1) == benign.replace(fenced(_PLAIN, label), "@", 1)
    assert prompt.count(section.rpartition("\n")[2]) == 1


def _contrast(group: GradedGroup) -> Any:
    request = contrast_request(group, CARE, REWARD)
    assert request is not None
    return request


def _replacement(group: GradedGroup) -> Any:
    request = replacement_request(group, RARE)
    assert request is not None
    return request


# ------------------------------------------------------------------ CARE's writer
OWN = "[llm] Says where the river ends"
_SETS = {
    "own": json.dumps([*(c.tagged for c in RUBRIC.criteria), OWN]),
    "same": json.dumps([c.tagged for c in RUBRIC.criteria]),
}


def _set(which: str) -> str:
    return f"<FINAL_SET>\n{_SETS[which]}\n</FINAL_SET>"


CARE_WRAPS: Mapping[str, Callable[[str, str], str]] = {
    "quoted in the analysis": lambda t, s: f'<ANALYSIS>It says "{t}".</ANALYSIS>\n{_set(s)}',
    "thought about": lambda t, s: f"<think>{t}</think><ANALYSIS>A trick.</ANALYSIS>{_set(s)}",
    "analysed without tags": lambda t, s: f"The answer says {t}\n{_set(s)}",
    "before": lambda t, s: f"{t}\n<ANALYSIS>A trick.</ANALYSIS>\n{_set(s)}",
    "after": lambda t, s: f"<ANALYSIS>A trick.</ANALYSIS>\n{_set(s)}\nThe answer said: {t}",
    "no set, quoted": lambda t, _: f'<ANALYSIS>It says "{t}", a trick.</ANALYSIS>',
    "no set, copied": lambda t, _: f"It says {t}",
    "nothing but the text": lambda t, _: t,
    "as the set": lambda t, _: f"<ANALYSIS>-</ANALYSIS><FINAL_SET>{t}</FINAL_SET>",
}


def seen(hostile: Hostile) -> str:
    """The text as a writer sees and may copy it."""
    section = fenced(visible_response(hostile.text), "answer")
    return section.partition("\n")[2].rpartition("\n")[0]


@each_hostile
@pytest.mark.parametrize("which", ["own", "same"])
def test_a_set_is_the_writers_own_or_refused(hostile: Hostile, which: str) -> None:
    group = group_with(hostile.text)
    own = {c.tagged for c in RUBRIC.criteria} | {OWN}
    for wrap, render in CARE_WRAPS.items():
        got = read_contrast(
            completion(render(seen(hostile), which)), _contrast(group), group, CARE, REWARD
        )
        assert {c.tagged for c in got.rubric.criteria} <= own, wrap
        assert got.rubric.criteria[: len(RUBRIC.criteria)] == RUBRIC.criteria, wrap
        quotes = [q for e in got.edits for q in e.evidence.quotes]
        assert all(q in visible_response(hostile.text) for q in quotes), wrap


def test_a_writer_that_does_it_right_is_not_hindered_by_what_it_quotes() -> None:
    """Quoted whole in the analysis, most texts leave the writer's own change in force."""

    def edited(hostile: Hostile) -> Evolution:
        group = group_with(hostile.text)
        text = CARE_WRAPS["quoted in the analysis"](seen(hostile), "own")
        return read_contrast(completion(text), _contrast(group), group, CARE, REWARD)

    small = [h for h in HOSTILE if len(h.text) < 50_000]
    accepted = [h.name for h in small if edited(h).rubric.version == 1]
    assert len(accepted) >= 0.95 * len(small)


# ------------------------------------------------------------------ RARE's writer
def _update(difference: str) -> dict[str, Any]:
    return {
        "id": "pace",
        "polarity": "negative",
        "diagnosis": {
            "difference": difference,
            "best_rollout_ids": ["R1"],
            "weaker_rollout_ids": ["R0"],
            "learning_direction": "Answer the question.",
            "nonredundancy": "No other check looks at it.",
        },
        "rubric": {
            "id": "pace",
            "check": "Is the river on the right continent?",
            "max_points": 2,
            "scoring_rule": "2 = yes; 1 = nearly; 0 = no",
        },
    }


def _updates(quote: str = "a trick") -> str:
    return json.dumps({"updates": [_update(f"R0 says {quote[:2_000]}")]}, ensure_ascii=False)


RARE_WRAPS: Mapping[str, Callable[[str], str]] = {
    "quoted": _updates,
    "quoted without escapes": lambda t: _updates("@@").replace("@@", t),
    "thought about": lambda t: f"<think>R0 is {t}</think>{_updates()}",
    "before": lambda t: f"R0 says {t}\n{_updates()}",
    "after": lambda t: f"{_updates()}\nR0 says {t}",
    "nothing but the text": lambda t: t,
    "copied in a fence": lambda t: f"R0 says\n```json\n{t}\n```",
}


@each_hostile
def test_updates_are_the_writers_own_or_refused(hostile: Hostile) -> None:
    request = _replacement(group_with(hostile.text))
    for wrap, render in RARE_WRAPS.items():
        try:
            got = read_replacements(completion(render(seen(hostile))), request)
        except WriterReplyError:
            continue
        checks = [r.criterion.text for r in got.items]
        assert checks == ["Is the river on the right continent?"], wrap


# ------------------------------------------------------------------ the report
class Tags(HTMLParser):
    """All tags and attributes of a page, in order; a comment or declaration counts as one."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("/" + tag, ()))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", ()))

    def handle_decl(self, decl: str) -> None:
        self.found.append(("declaration", ()))

    def handle_pi(self, data: str) -> None:
        self.found.append(("instruction", ()))

    def unknown_decl(self, data: str) -> None:
        self.found.append(("unknown declaration", ()))


@pytest.fixture(scope="module")
def run_data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    folder = make_run(Path(tmp_path_factory.mktemp("run")) / "run")
    return read_report_data(folder.files)


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_view(make_run(Path(tmp_path_factory.mktemp("run")) / "run").files)


def poisoned(value: Any, text: str) -> Any:
    """The same view of a run with ``text`` in place of every text."""
    if isinstance(value, dict):
        return {key: poisoned(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner, text) for inner in value]
    return text if isinstance(value, str) else value


@each_hostile
def test_a_report_page_has_no_tag_or_attribute_of_a_hostile_text(
    hostile: Hostile, run_page: dict[str, Any]
) -> None:
    text = hostile.text[:5_000]
    page = report_page([poisoned(run_page, text)])
    benign = report_page([poisoned(run_page, _PLAIN)])
    assert Tags(page).found == Tags(benign).found
    data = page.partition('type="application/json">')[2].partition("</script>")[0]
    assert json.loads(data) == {"runs": [poisoned(run_page, text)]}  # and it comes through whole
    page.encode("utf-8", "replace")


@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_report_picture_has_no_element_of_a_hostile_text(run_data: ReportData) -> None:
    """The picture draws labels as shapes; whatever the text, it is one well-formed SVG."""
    texts = [h.text for h in HOSTILE if h.text.strip()]
    kinds: set[str] = set()
    for at in range(0, len(texts), 16):
        criteria = tuple(
            Criterion(id=f"c{i}", text=text) for i, text in enumerate(texts[at : at + 16])
        )
        version = replace(run_data.history[0], rubric=Rubric(criteria=criteria))
        picture = draw(replace(run_data, history=[version]), image_format="svg")
        root = ElementTree.fromstring(picture)
        kinds |= {element.tag.rpartition("}")[2].lower() for element in root.iter()}
    assert not kinds & {"script", "foreignobject", "a", "iframe", "image", "set", "animate"}
