"""Which change a writer's set makes: kept, rewritten, added, put back, refused."""

import random

import pytest

from core.evolution.care_edits import EditRules, edited_rubric
from core.evolution.similarity import is_near_duplicate
from core.records import Evidence, Evolution
from core.rubric import Cap, Criterion, Rubric, Rule
from core.writer_requests import ContrastRequest
from tests.unit.method_builders import llm, resist

WORDS = llm("c1", "Does the story use the words apple, river and stone?", weight=3)
LENGTH = llm("c2", "Is the story at most 60 words long?", weight=1)
ENDING = llm("c3", "Does the story end with a question?", weight=2)
FILLER = resist("r1", "Does the story avoid placeholder text such as [insert name]?", weight=2)
RUBRIC = Rubric(version=4, criteria=(WORDS, LENGTH, ENDING, FILLER))

SHARPER = (
    "[Resist] Does the story use apple, river and stone in sentences that tell something, "
    "instead of listing the words?"
)
NEW_RESIST = "[Resist] Does the text avoid praising itself, as in 'a masterful tale'?"
NEW_LLM = "[llm] Does the plot give the hero a reason to leave home?"


def rules(**changes: object) -> EditRules:
    base: dict[str, object] = {
        "is_adaptive": True,
        "is_chase": True,
        "max_new": 1,
        "max_criteria": 24,
        "max_chars": 1000,
    }
    return EditRules(**(base | changes))  # type: ignore[arg-type]


def edited(
    items: list[str],
    *,
    rubric: Rubric = RUBRIC,
    unsatisfied: tuple[str, ...] = (),
    analysis: str = "",
    **changes: object,
) -> Evolution:
    request = ContrastRequest(
        query_id="q1",
        prompt="Write.",
        satisfied=tuple(c for c in rubric.criteria if c.id not in unsatisfied),
        unsatisfied=tuple(c for c in rubric.criteria if c.id in unsatisfied),
        response="apple apple apple",
        anchor=None,
    )
    evidence = Evidence(rollouts=(2,), analysis=analysis)
    return edited_rubric(rubric, request, items, rules(**changes), evidence, "care")


def all_but(*left_out: Criterion) -> list[str]:
    return [c.tagged for c in RUBRIC.criteria if c not in left_out]


def test_an_unchanged_set_is_a_noop_and_not_a_refusal() -> None:
    evolution = edited(all_but())
    assert [e.status for e in evolution.edits] == ["noop"]
    assert evolution.rubric is RUBRIC
    assert evolution.num_restored == 0


def test_case_spacing_and_final_period_do_not_make_a_new_text() -> None:
    items = ["[llm]  does the story USE the words apple, river and stone?.", *all_but(WORDS)]
    assert [e.status for e in edited(items).edits] == ["noop"]


def test_a_missing_and_a_new_text_are_a_rewrite_that_keeps_id_place_and_weight() -> None:
    evolution = edited([*all_but(WORDS), SHARPER])
    new = evolution.rubric.criteria[0]
    assert (new.id, new.kind, new.weight, new.max) == ("c1", "resist", 3, 1)
    assert new.tagged == SHARPER
    assert evolution.rubric.criteria[1:] == RUBRIC.criteria[1:]
    assert evolution.rubric.version == 5
    (edit,) = evolution.edits
    assert (edit.branch, edit.status, edit.old) == ("adaptive", "accepted", WORDS)
    assert edit.evidence.rollouts == (2,)
    assert evolution.num_restored == 0


def test_chase_rewrites_an_llm_criterion_even_if_it_is_not_satisfied() -> None:
    merged = "[llm] Does the story end with a question that the hero must answer?"
    evolution = edited([*all_but(ENDING), merged], unsatisfied=("c3",))
    assert evolution.rubric.criterion("c3").tagged == merged
    assert evolution.edits[0].branch == "chase"


def test_adaptive_cannot_rewrite_what_the_top_rollout_did_not_satisfy() -> None:
    evolution = edited([*all_but(WORDS), SHARPER], unsatisfied=("c1",))
    assert evolution.rubric.criterion("c1") == WORDS
    assert evolution.num_restored == 1
    assert evolution.rubric.criteria[-1].tagged == SHARPER


def test_a_new_text_without_a_missing_one_is_appended_with_the_mean_weight() -> None:
    evolution = edited([*all_but(), NEW_RESIST])
    new = evolution.rubric.criteria[-1]
    assert (new.kind, new.weight) == ("resist", 2.0)  # (3 + 1 + 2 + 2) / 4
    assert new.id not in RUBRIC.ids
    (edit,) = evolution.edits
    assert (edit.old, edit.new, edit.branch) == (None, new, "adaptive")


def test_a_missing_criterion_without_a_new_text_is_put_back_and_counted() -> None:
    evolution = edited(all_but(LENGTH, ENDING))
    assert evolution.rubric is RUBRIC
    assert evolution.num_restored == 2
    assert [e.status for e in evolution.edits] == ["noop"]
    assert "2 criteria" in evolution.edits[0].reason


def test_of_two_missing_the_most_similar_is_rewritten_and_the_other_put_back() -> None:
    evolution = edited([*all_but(WORDS, LENGTH), SHARPER])
    assert evolution.rubric.criterion("c1").tagged == SHARPER
    assert evolution.rubric.criterion("c2") == LENGTH
    assert evolution.num_restored == 1


def test_a_text_unlike_the_missing_one_is_appended_and_the_old_one_put_back() -> None:
    evolution = edited([*all_but(LENGTH), NEW_RESIST])
    assert evolution.rubric.criteria[:4] == RUBRIC.criteria
    assert evolution.rubric.criteria[4].tagged == NEW_RESIST
    assert evolution.num_restored == 1


@pytest.mark.parametrize(
    "analysis",
    [
        "The exploited criterion is: is the story at most 60 words long? It was gamed.",
        'It games "the story at most 60 words" by bragging.',
        "Criterion c2 was exploited.",
    ],
)
def test_an_unlike_text_is_a_rewrite_when_the_analysis_names_the_old_one(analysis: str) -> None:
    evolution = edited([*all_but(LENGTH), NEW_RESIST], analysis=analysis)
    assert evolution.rubric.criterion("c2").tagged == NEW_RESIST
    assert evolution.num_restored == 0
    assert len(evolution.rubric.criteria) == 4


def test_the_most_similar_of_two_similar_missing_ones_is_rewritten() -> None:
    loose = llm("c1", "Does the story use the river, a lamp and a door?")
    rubric = Rubric(criteria=(loose, WORDS.model_copy(update={"id": "c2"}), ENDING))
    evolution = edited([ENDING.tagged, SHARPER], rubric=rubric)
    assert evolution.rubric.criterion("c1") == loose
    assert evolution.rubric.criterion("c2").tagged == SHARPER
    assert evolution.num_restored == 1


def test_naming_a_missing_resist_criterion_does_not_make_it_rewritable() -> None:
    evolution = edited([*all_but(FILLER), NEW_RESIST], analysis=FILLER.text)
    assert evolution.rubric.criterion("r1") == FILLER
    assert evolution.rubric.criteria[-1].tagged == NEW_RESIST
    assert evolution.num_restored == 1


def test_a_missing_resist_criterion_is_put_back_and_counted() -> None:
    evolution = edited(all_but(FILLER))
    assert evolution.rubric is RUBRIC
    assert evolution.num_restored == 1


@pytest.mark.parametrize("tag", ["[Resist]", "[llm]"])
def test_a_changed_or_loosened_resist_criterion_is_refused_and_put_back(tag: str) -> None:
    text = f"{tag} Does the story mostly avoid placeholder text such as [insert name]?"
    evolution = edited([*all_but(FILLER), text])
    assert evolution.rubric is RUBRIC
    assert evolution.num_restored == 1
    (edit,) = evolution.edits
    assert (edit.status, edit.old) == ("refused", FILLER)
    assert "[Resist]" in edit.reason


def test_the_same_text_under_the_llm_tag_does_not_loosen_a_resist_criterion() -> None:
    evolution = edited([*all_but(FILLER), f"[llm] {FILLER.text}"])
    assert evolution.rubric is RUBRIC
    assert evolution.edits[0].status == "refused"


def test_new_criteria_of_both_tags_in_one_reply_are_refused() -> None:
    evolution = edited([*all_but(LENGTH), NEW_RESIST, NEW_LLM])
    assert evolution.rubric is RUBRIC
    assert [e.status for e in evolution.edits] == ["refused", "refused"]
    assert evolution.num_restored == 1


def test_the_tag_of_a_branch_that_is_off_is_refused() -> None:
    chase_only = edited([*all_but(), NEW_RESIST], is_adaptive=False)
    assert chase_only.rubric is RUBRIC
    assert chase_only.edits[0].status == "refused"
    adaptive_only = edited([*all_but(WORDS), NEW_LLM], is_chase=False)
    assert adaptive_only.rubric is RUBRIC
    assert adaptive_only.edits[0].status == "refused"
    assert adaptive_only.num_restored == 1


def test_only_so_many_new_criteria_are_taken_from_one_reply() -> None:
    second = "[llm] Does the dialogue sound like two different people?"
    evolution = edited([*all_but(), NEW_LLM, second])
    assert [e.status for e in evolution.edits] == ["accepted", "refused"]
    assert len(evolution.rubric.criteria) == 5
    both = edited([*all_but(), NEW_LLM, second], max_new=2)
    assert [e.status for e in both.edits] == ["accepted", "accepted"]
    assert len(set(both.rubric.ids)) == 6


REWORDED = "[llm] Is the story not more than 60 words long?"
MERGED = "[llm] Does the story end with a question that the hero must answer?"


def test_a_reply_makes_one_change_whether_it_rewrites_or_adds() -> None:
    evolution = edited([WORDS.tagged, FILLER.tagged, REWORDED, MERGED])
    assert [e.status for e in evolution.edits] == ["accepted", "refused"]
    assert evolution.rubric.criterion("c2").tagged == REWORDED
    assert evolution.rubric.criterion("c3") == ENDING
    assert evolution.num_restored == 1
    added = edited([*all_but(ENDING), NEW_LLM, MERGED])
    assert [e.status for e in added.edits] == ["accepted", "refused"]
    assert added.rubric.criterion("c3") == ENDING
    both = edited([WORDS.tagged, FILLER.tagged, REWORDED, MERGED], max_new=2)
    assert [e.status for e in both.edits] == ["accepted", "accepted"]


@pytest.mark.parametrize("change", [NEW_LLM, NEW_RESIST])
def test_a_miscopied_text_does_not_take_the_place_of_the_change_that_was_meant(change: str) -> None:
    miscopied = "[llm] Does this story end with a question?"
    evolution = edited([miscopied, *all_but(ENDING), change])
    assert [(e.status, e.old) for e in evolution.edits] == [("refused", ENDING), ("accepted", None)]
    assert evolution.rubric.criteria[:4] == RUBRIC.criteria
    assert evolution.rubric.criteria[4].tagged == change
    assert evolution.num_restored == 1
    alone = edited([miscopied, *all_but(ENDING)])
    assert alone.rubric.criterion("c3").tagged == miscopied


def test_of_several_changes_the_one_that_the_analysis_names_is_made() -> None:
    items = [WORDS.tagged, FILLER.tagged, REWORDED, MERGED]
    evolution = edited(items, analysis=f"The gap belongs to: {ENDING.text}")
    assert evolution.rubric.criterion("c2") == LENGTH
    assert evolution.rubric.criterion("c3").tagged == MERGED
    assert evolution.num_restored == 1


@pytest.mark.parametrize(
    "text",
    [
        "[llm] Does this story end with a question?",
        "[Resist] Does the story use the words apple, river and stone?",
        "[llm] The story ends with a question.",
    ],
)
def test_a_near_duplicate_of_an_existing_criterion_is_refused(text: str) -> None:
    evolution = edited([*all_but(), text])
    assert evolution.rubric is RUBRIC
    assert "near duplicate" in evolution.edits[0].reason


def test_another_number_is_another_criterion() -> None:
    evolution = edited([*all_but(), "[llm] Is the story at least 20 words long?"])
    assert evolution.edits[0].status == "accepted"


def test_texts_that_differ_in_a_number_or_a_negation_only_are_no_duplicates() -> None:
    text = "The letter names the sender, the date, the town, the {} reasons and {}the price paid."
    assert is_near_duplicate(text.format("four", ""), text.format("four", "the full "))
    assert not is_near_duplicate(text.format("four", ""), text.format("five", ""))
    assert not is_near_duplicate(text.format("4", ""), text.format("4", "not "))


def test_a_full_rubric_takes_no_more_but_can_still_be_rewritten() -> None:
    assert edited([*all_but(), NEW_LLM], max_criteria=4).edits[0].status == "refused"
    assert edited([*all_but(WORDS), SHARPER], max_criteria=4).edits[0].status == "accepted"


def test_a_text_that_is_too_long_is_refused() -> None:
    evolution = edited([*all_but(), NEW_LLM], max_chars=20)
    assert evolution.edits[0].status == "refused"
    assert "wanted at most 20" in evolution.edits[0].reason


def test_a_rewrite_drops_rule_and_levels_and_becomes_binary() -> None:
    graded = Criterion(
        id="c1",
        text=WORDS.text,
        max=2,
        levels={0: "none", 1: "some", 2: "all"},
        rule=Rule(name="keywords"),
    )
    rubric = Rubric(criteria=(graded, LENGTH))
    for text in (SHARPER, "[llm] Does the story use the words apple, river, stone and moss?"):
        new = edited([LENGTH.tagged, text], rubric=rubric).rubric.criterion("c1")
        assert (new.max, new.levels, new.rule) == (1, None, None)


def test_a_binary_criterion_that_only_turns_resist_keeps_its_rule() -> None:
    ruled = Criterion(id="c1", text=WORDS.text, rule=Rule(name="keywords"))
    rubric = Rubric(criteria=(ruled, LENGTH))
    new = edited([LENGTH.tagged, f"[Resist] {WORDS.text}"], rubric=rubric).rubric.criterion("c1")
    assert (new.kind, new.rule) == ("resist", Rule(name="keywords"))


@pytest.mark.parametrize("tag", ["[Resist]", "[llm]"])
def test_a_penalty_is_put_back_since_a_rewrite_would_turn_its_sense_around(tag: str) -> None:
    penalty = llm("c1", WORDS.text, weight=-2)
    rubric = Rubric(criteria=(penalty, LENGTH))
    sharper = f"{tag} {SHARPER.removeprefix('[Resist] ')}"
    evolution = edited([LENGTH.tagged, sharper], rubric=rubric)
    assert evolution.rubric.criterion("c1") == penalty
    assert evolution.num_restored == 1


def test_a_graded_criterion_under_a_reward_cap_is_not_rewritten() -> None:
    graded = Criterion(id="c1", text=WORDS.text, max=2)
    cap = Cap(criterion_id="c1", score_lte=1, max_normalized_score=0.5)
    rubric = Rubric(criteria=(graded, LENGTH), caps=(cap,))
    evolution = edited([LENGTH.tagged, SHARPER], rubric=rubric)
    assert evolution.rubric is rubric
    assert "cap" in evolution.edits[0].reason
    assert evolution.num_restored == 1


def test_new_ids_are_fresh_also_after_a_rollback_took_one_away() -> None:
    first = edited([*all_but(), NEW_RESIST])
    first_id = first.rubric.ids[-1]
    rolled_back = Rubric(version=first.rubric.version + 1, criteria=RUBRIC.criteria)
    again = edited([*all_but(), NEW_RESIST], rubric=rolled_back)
    assert again.rubric.ids[-1] != first_id
    reserved = frozenset({"a5", "a6", "a9"})
    assert edited([*all_but(), NEW_RESIST], reserved_ids=reserved).rubric.ids[-1] == "a10"


def test_criteria_that_the_writer_did_not_see_stay() -> None:
    request = ContrastRequest(
        query_id="q1",
        prompt="",
        satisfied=(WORDS,),
        unsatisfied=(),
        response="",
        anchor=None,
    )
    evolution = edited_rubric(
        RUBRIC, request, [WORDS.tagged, NEW_RESIST], rules(), Evidence(), "care"
    )
    assert evolution.rubric.criteria[:4] == RUBRIC.criteria
    assert evolution.num_restored == 0


def test_chinese_texts_are_compared_without_spaces() -> None:
    old = llm("c1", "回答是否提到苹果、河流和石头这三个词")
    other = llm("c2", "故事是否以问句结尾")
    rubric = Rubric(criteria=(old, other))
    sharper = "[Resist] 回答是否在有意义的句子里使用苹果、河流和石头、而不是罗列这三个词"
    evolution = edited([other.tagged, sharper], rubric=rubric)
    assert evolution.rubric.criterion("c1").tagged == sharper
    assert evolution.num_restored == 0


def test_no_set_of_texts_ever_loses_a_criterion_silently() -> None:
    """Random subsets with random new texts: every old criterion is there, rewritten by an edit."""
    random_ = random.Random(7)
    pool = [SHARPER, NEW_RESIST, NEW_LLM, "[llm] Is it fun?", "[Resist] No lists of words."]
    pool += [f"[Resist] {WORDS.text}", f"[llm] {FILLER.text}", "[llm] Is the story short?"]
    for _ in range(500):
        items = [c.tagged for c in RUBRIC.criteria if random_.random() < 0.6]
        items += random_.sample(pool, random_.randrange(4))
        random_.shuffle(items)
        unsatisfied = tuple(c.id for c in RUBRIC.criteria if random_.random() < 0.3)
        analysis = random_.choice(["", "c1 was gamed", LENGTH.text])
        evolution = edited(items, unsatisfied=unsatisfied, analysis=analysis)
        rewritten = {
            e.old.id: e.new for e in evolution.edits if e.status == "accepted" and e.old and e.new
        }
        for old in RUBRIC.criteria:
            assert evolution.rubric.criterion(old.id) == rewritten.get(old.id, old)
        assert evolution.rubric.criterion("r1") == FILLER
        num_accepted = sum(e.status == "accepted" for e in evolution.edits)
        assert evolution.rubric.version == RUBRIC.version + (1 if num_accepted else 0)
        kinds = {e.new.kind for e in evolution.edits if e.status == "accepted" and e.new}
        assert len(kinds) <= 1
        missing = sum(c.tagged not in items for c in RUBRIC.criteria)
        assert evolution.num_restored == missing - len(rewritten)


@pytest.mark.parametrize("text", ["[llm]", "[Resist]  ", "[llm] half \ud800", "[llm] a\x00b"])
def test_a_text_that_cannot_be_a_criterion_is_refused(text: str) -> None:
    evolution = edited([*all_but(LENGTH), text])
    assert evolution.rubric is RUBRIC
    assert [e.status for e in evolution.edits] == ["refused"]
    assert evolution.num_restored == 1
