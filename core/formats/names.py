"""The names of the data formats, as a config and a command line give them."""

from typing import Literal, get_args

FormatName = Literal[
    "auto",
    "native",
    "plain",
    "wildchecklists",
    "general_requirements",
    "rlcf_requirements",
    "rare",
    "rare_queries",
    "dr_tulu",
    "rar",
    "rar_explicit",
    "healthbench",
    "healthbench_professional",
    "chasing_tail",
    "online_rubrics",
    "open_rubrics",
    "rubric_arm",
    "research_rubrics",
    "advanced_if",
    "auto_rubric",
    "tinker",
]
"""``auto`` finds the format of each file by what its rows hold."""

FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
