"""What the papers say about each recipe, written by hand: it is not read from the recipes."""

from dataclasses import dataclass
from pathlib import Path

from core.config import RunConfig
from core.config_offline import OfflineConfig
from drivers.config_file import load_config, load_offline_config

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "drivers" / "configs"
OFFLINE = ("dpo_rlcf", "sft_anchor", "sft_scripts")
"""Recipes of `ratchet offline`; all others are of `ratchet train`."""
RECIPES = sorted({p.stem for p in CONFIGS.glob("*.yaml")} - set(OFFLINE))
BASES = ("care", "rare_negative", "rler", "online_rubrics", "mpo", "ratchet")
"""Recipes that stand alone; all others extend one of them."""


@dataclass(frozen=True)
class Expected:
    """What the paper says about one recipe."""

    method: str
    steps: int
    groups: int
    group_size: int
    lr: float
    kl: float
    mini_batches: int
    template: str
    scope: str = "query"


CARE = (96, 16, 1e-6, 0.001, 2, "verbatim")
RARE = (32, 8, 1e-6, 0.001, 1, "ids")

PAPER: dict[str, Expected] = {
    "care": Expected("care", 281, *CARE),
    "care_300": Expected("care", 300, *CARE),
    "care_adaptive": Expected("care", 281, *CARE),
    "care_chase": Expected("care", 281, *CARE),
    "care_adaptive_no_veto": Expected("care", 281, *CARE),
    "care_adaptive_no_anchor": Expected("care", 281, *CARE),
    "care_no_veto": Expected("care", 281, *CARE),
    "rubric_rl": Expected("static", 281, *CARE),
    "rubric_rl_universal": Expected("static", 281, *CARE),
    "care_online": Expected("online_rubrics", 281, *CARE),
    "rare_negative": Expected("rare", 132, *RARE),
    "rare_positive": Expected("rare", 132, *RARE),
    "rare_mixed": Expected("rare", 132, *RARE),
    "rare_task": Expected("rare", 132, *RARE, scope="task"),
    "sample_static": Expected("static", 132, *RARE),
    "task_static": Expected("static", 132, *RARE, scope="task"),
    "rare_rler": Expected("rler", 132, *RARE),
    "rare_mpo": Expected("mpo", 132, *RARE, scope="task"),
    "chasing_tail_rare": Expected("rare", 308, *RARE),
    "writingbench_rare": Expected("rare", 200, *RARE),
    "rler": Expected("rler", 650, 32, 8, 5e-7, 0.001, 1, "ids"),
    "online_rubrics": Expected("online_rubrics", 60, 96, 16, 5e-6, 0.01, 1, "ids"),
    "mpo": Expected("mpo", 117, 8, 8, 3e-6, 0.02, 1, "ids", scope="task"),
    "ratchet": Expected("ratchet", 300, 32, 8, 1e-6, 0.001, 1, "ids"),
}

CARE_SWITCHES = {  # adaptive, chase, veto, anchor
    "care": (True, True, True, True),
    "care_300": (True, True, True, True),
    "care_adaptive": (True, False, True, True),
    "care_chase": (False, True, True, True),
    "care_adaptive_no_veto": (True, False, False, True),
    "care_adaptive_no_anchor": (True, False, True, False),
    "care_no_veto": (True, True, False, True),
}

POLARITY = {
    "rare_negative": "negative",
    "rare_positive": "positive",
    "rare_mixed": "mixed",
    "chasing_tail_rare": "negative",
    "writingbench_rare": "negative",
}


def recipe(name: str) -> RunConfig:
    return load_config(str(CONFIGS / f"{name}.yaml"))


def offline_recipe(name: str) -> OfflineConfig:
    return load_offline_config(str(CONFIGS / f"{name}.yaml"))
