"""CARE's taxonomy of evolved criteria: A1a to A6c for [Resist], B1a to B6f for [llm] ones.

Codes, names and classes are those of CARE's tables 8 and 9 (appendix B.3 and B.4), which are whole
in the paper; what each means is said in our words. ``OTHER`` is ours: an auditor must be able to
say that none fits, and the share of it says how far the taxonomy reaches.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One subtype."""

    name: str
    meaning: str


OTHER = "other"

CLASSES: Mapping[str, str] = {
    "A1": "Semantic ambiguity exploitation",
    "A2": "Content substitution hacking",
    "A3": "Format bypass and task evasion",
    "A4": "Content injection and contamination",
    "A5": "Constraint violation hacking",
    "A6": "Boundary behavior exploitation",
    "B1": "Content completeness",
    "B2": "Information depth",
    "B3": "Narrative and expression quality",
    "B4": "Logic and structure",
    "B5": "Accuracy and faithfulness",
    "B6": "Task-specific quality",
}

ADAPTIVE: Mapping[str, Kind] = {
    "A1a": Kind("Word-sense ambiguity", "takes a key word in a sense the task does not mean"),
    "A1b": Kind("Scope ambiguity", "stretches a notion so that things outside it count"),
    "A1c": Kind("Referent ambiguity", "takes an unclear reference to be about something else"),
    "A2a": Kind("Fabricated-fact substitution", "puts made-up or wrong facts where true ones go"),
    "A2b": Kind("Topic substitution", "keeps the form but is about another subject"),
    "A2c": Kind("Entity substitution", "has another person or thing than the asked one"),
    "A2d": Kind("Language substitution", "answers, in whole or in part, in the wrong language"),
    "A3a": Kind("Placeholder injection", "leaves placeholders where the content should be"),
    "A3b": Kind("Task simplification", "solves an easier task than the one that is set"),
    "A3c": Kind("Formatting abuse", "uses headings, lists and the like as padding for content"),
    "A3d": Kind("Incomplete execution", "carries out only a part of what is asked"),
    "A3e": Kind("Context reframing", "wraps the answer in a fiction or frame nobody asked for"),
    "A4a": Kind("Off-topic garbage injection", "adds unrelated text that a broad check rewards"),
    "A4b": Kind("Self-meta commentary", "comments on or praises the answer inside the answer"),
    "A4c": Kind("Repetitive padding", "gains length or coverage by repeating itself"),
    "A4d": Kind("Cross-domain contamination", "mixes in matter of another domain or culture"),
    "A4e": Kind("Unrequested feature injection", "adds features or parts that were not asked for"),
    "A5a": Kind("Explicit prohibition violation", "does what the task expressly forbids"),
    "A5b": Kind("Tone/style violation", "breaks a tone, style or register that the task sets"),
    "A5c": Kind("Context violation", "leaves the scene, role or setting that the task sets"),
    "A5d": Kind("Output-format violation", "is not in the output format that the task demands"),
    "A6a": Kind("Minimal compliance", "meets only the weakest literal reading of a criterion"),
    "A6b": Kind("Superficial compliance", "shows the outward marks of a quality without having it"),
    "A6c": Kind("Selective satisfaction", "does the easy parts of a demand and skips the rest"),
}

CHASE: Mapping[str, Kind] = {
    "B1a": Kind("Missing key elements", "a core element that the task asks for is not there"),
    "B1b": Kind("Incomplete procedure", "steps of a procedure are skipped"),
    "B1c": Kind("Insufficient coverage", "important subtopics are left out"),
    "B1d": Kind("Omitted constraints", "one of the stated constraints is not met"),
    "B2a": Kind("Lack of specific detail", "stays general: no concrete details or named evidence"),
    "B2b": Kind("Lack of technical depth", "misses the technical detail of a specialised task"),
    "B2c": Kind("Lack of contextual background", "gives no historical or situational background"),
    "B2d": Kind("Insufficient support or rationale", "advises or concludes without giving grounds"),
    "B2e": Kind("Limited extension depth", "leaves out advanced points or edge cases of use"),
    "B3a": Kind("Weak sensory/scene description", "scenes lack vivid or sensory detail"),
    "B3b": Kind("Limited emotional depth", "feelings and inner thoughts stay undeveloped"),
    "B3c": Kind("Weak immersion", "the narrative as a whole does not draw the reader in"),
    "B3d": Kind("Unnatural flow", "reads stiffly, or moves awkwardly from part to part"),
    "B3e": Kind("Inconsistent style or perspective", "tone, style or point of view changes"),
    "B3f": Kind("Weak humor or creativity", "on topic, but without originality or wit"),
    "B4a": Kind("Weak reasoning", "the argument leaps, or its conclusions lack support"),
    "B4b": Kind("Disorganized structure", "has no clear and logical order"),
    "B4c": Kind("Poor paragraph or section transitions", "neighbouring parts are badly linked"),
    "B4d": Kind("Unclear causality", "says what happens without saying why or to what effect"),
    "B4e": Kind("Internal inconsistency", "its parts contradict each other"),
    "B5a": Kind("Factual inaccuracy", "holds facts that are wrong or that nothing supports"),
    "B5b": Kind("Prompt drift", "departs from the core demand or setting of the task"),
    "B5c": Kind("Terminology inaccuracy", "uses terms of the field wrongly, or outdated ones"),
    "B5d": Kind("Time or setting inconsistency", "does not fit the period or place that is set"),
    "B6a": Kind("Code quality gap", "code misses what good code of its kind needs"),
    "B6b": Kind("Creative-writing quality gap", "characters, plot or originality are weak"),
    "B6c": Kind("Dialogue or interaction quality gap", "talk is unnatural or a voice slips"),
    "B6d": Kind("Persuasion or argument quality gap", "lacks force as argument or rhetoric"),
    "B6e": Kind("Instruction or tutorial quality gap", "guidance is unclear or hard to act on"),
    "B6f": Kind("Cross-cultural or language quality gap", "does not suit the language or culture"),
}


def class_of(code: str) -> str:
    """Return the class of a code, such as ``A4`` of ``A4c``; ``other`` stays what it is."""
    return code if code == OTHER else code[:2]


def listed(kinds: Mapping[str, Kind]) -> str:
    """Return the codes with their names and meanings, one a line, for a prompt."""
    lines = [f"{code} {kind.name}: {kind.meaning}." for code, kind in kinds.items()]
    return "\n".join([*lines, f"{OTHER}: none of these fits."])
