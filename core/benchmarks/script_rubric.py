"""The twelve fixed script metrics of RARE: categories, metrics, check ids, thresholds of a zero.

The names are those of RARE's released judge (Eureka-Maggie/RARE, rubric/judge, version
``microfilm_overall_12_v9``). What each check asks and what 0, 1 and 2 mean stands in
prompts/bench_script_metrics.txt, in this project's own words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

VERSION = "microfilm_overall_12_v9"

TOP_KEYS = (
    "rubric_version",
    "query_analysis",
    "input_integrity",
    "evaluation_stage",
    "input_warnings",
    "audits",
    "metrics",
)

DECISIONS = {"pass": 2, "partial": 1, "fail": 0}
MAX_SCORE = 2

CAUSAL = "causal_temporal_logic"
PACING = "pacing_shot_utility"
TURN_CLASSES = ("established", "reasonable_inference", "coincidence", "missing")
TURNS_THAT_FORBID_PASS = ("coincidence", "missing")
BLOCK_VERDICTS = ("essential", "mergeable", "removable")
MAX_PROGRESSION = 8


@dataclass(frozen=True, slots=True)
class Metric:
    """What an audit of one metric names."""

    checks: tuple[str, str, str]
    zero_thresholds: tuple[str, ...]
    """One of them is hit where the decision is ``fail``."""
    when_incomplete: str = ""
    """The threshold that a script without its end hits; empty where it need not fail."""
    may_pass_incomplete: bool = True


METRICS: Mapping[str, Mapping[str, Metric]] = {
    "query_fulfillment": {
        "query_requirement_coverage": Metric(
            (
                "required_content_realized",
                "requested_trajectory_result",
                "formal_constraints_satisfied",
            ),
            (
                "identity_requirement_missing_or_replaced",
                "incomplete_stage_prevents_requested_result",
            ),
            when_incomplete="incomplete_stage_prevents_requested_result",
        ),
        "query_grounded_elaboration": Metric(
            ("major_additions_traceable", "no_contradictory_replacement", "focus_preserved"),
            ("majority_additions_off_query_or_contradictory",),
        ),
        "tone_style_alignment": Metric(
            ("main_scenes_match_style", "turn_climax_match_style", "ending_match_style"),
            ("dominant_experience_opposes_or_lacks_requested_style",),
            may_pass_incomplete=False,
        ),
    },
    "narrative_coherence": {
        CAUSAL: Metric(
            ("triggers_established", "actions_have_consequences", "chronology_reveals_consistent"),
            ("core_causal_chain_absent_or_contradictory",),
        ),
        "character_motivation_behavior": Metric(
            (
                "goals_knowledge_pressure_established",
                "choices_consistent_with_known_information",
                "change_has_behavioral_cause",
            ),
            ("central_actions_unmotivated_or_self_contradictory",),
        ),
        "cross_scene_state_continuity": Metric(
            (
                "entity_object_state_continuous",
                "knowledge_resource_state_continuous",
                "space_time_transition_unambiguous",
            ),
            ("actual_state_contradictions_invalidate_core_result",),
        ),
    },
    "cinematic_executability": {
        "visual_audio_observability": Metric(
            (
                "core_conflict_rule_observable",
                "motivation_turn_observable",
                "cause_result_observable",
            ),
            ("core_story_depends_on_exposition_without_playable_support",),
        ),
        "shot_feasibility_atomicity": Metric(
            (
                "complex_sequence_executable",
                "transitions_effects_consistent",
                "instructions_complete_nonconflicting",
            ),
            ("multiple_conflicting_or_unexecutable_core_sequences",),
            may_pass_incomplete=False,
        ),
        PACING: Metric(
            (
                "all_blocks_add_nonoverlapping_function",
                "no_redundant_explanation_pattern",
                "key_beats_sufficiently_developed",
            ),
            (
                "multiple_major_gaps_or_systemic_redundancy",
                "incomplete_stage_omits_climax_or_ending",
            ),
            when_incomplete="incomplete_stage_omits_climax_or_ending",
        ),
    },
    "dramatic_effectiveness": {
        "engagement_progression": Metric(
            ("opening_focus_established", "middle_pressure_changes", "turn_changes_action"),
            ("no_progression_engine_or_consequential_turn",),
            may_pass_incomplete=False,
        ),
        "setup_payoff_ending": Metric(
            (
                "significant_setups_transformed",
                "ending_causally_earned",
                "ending_preserves_inference",
            ),
            (
                "ending_missing_arbitrary_or_wholly_unearned",
                "incomplete_stage_has_no_written_ending",
            ),
            when_incomplete="incomplete_stage_has_no_written_ending",
        ),
        "distinctiveness_resonance": Metric(
            (
                "central_mechanism_causally_specific",
                "character_action_combination_specific",
                "final_image_leaves_aftereffect",
            ),
            ("generic_template_without_causally_specific_choice",),
            may_pass_incomplete=False,
        ),
    },
}
"""By category, its three metrics."""

ALL_METRICS: Mapping[str, Metric] = {
    name: metric for metrics in METRICS.values() for name, metric in metrics.items()
}
