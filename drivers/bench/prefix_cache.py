"""The part ``prefix_cache``: how much of what a judge reads its engine has read before.

Three measurements with the product's prompts and the small model's tokenizer: a real vLLM engine
scores groups and rescores them, in the product's layout and with the response before the criteria;
the arithmetic of the cache, held against the engine, gives the same for more groups, for blocks as
small as on a GPU and for caches that hold less than is in flight; and real Ray Serve sends calls to
1 to 8 replicas with its own router and with the product's. ``share`` is of prompt tokens, from the
cache; ``computed_tokens`` are the others.
"""

import asyncio
import logging
from typing import Any

from drivers.bench.part import Options, Part, Row
from drivers.bench.prefix_cache_engine import (
    ENGINE_BLOCK,
    Encoder,
    by_arithmetic,
    by_capacity,
    by_engine,
    turn_of,
)
from drivers.bench.prefix_cache_work import make_groups
from drivers.bench.store_session import ray_session
from drivers.packaged_model import packaged_model_folder

_NUM_GROUPS = 8
_NUM_IN_ENGINE = 3
_REPLICAS = (1, 2, 4, 8)

log = logging.getLogger("ratchet")


def measure(options: Options) -> dict[str, Any]:
    """Return the shares of layouts and routers."""
    folder = str(packaged_model_folder())
    turn = turn_of(folder)
    encoder = Encoder(folder, *turn)
    groups = make_groups(_NUM_GROUPS, options.seed)
    in_engine = groups[: 1 if options.is_short else _NUM_IN_ENGINE]
    log.info("prefix_cache: layouts by arithmetic")
    result: dict[str, Any] = {
        "layouts": by_arithmetic(groups, encoder),
        "share_by_groups_held": by_capacity(groups, encoder),
    }
    with ray_session(has_serve=True):
        from drivers.bench.prefix_cache_routing import measure_routing

        counts = _REPLICAS[:2] if options.is_short else _REPLICAS
        result["routing"] = asyncio.run(measure_routing(folder, turn, counts, options.seed))
    log.info("prefix_cache: %d groups through a real engine", len(in_engine))
    result["engine"] = asyncio.run(by_engine(in_engine, folder))
    result["engine_by_arithmetic"] = by_arithmetic(in_engine, encoder, ENGINE_BLOCK)
    return result


def rows(result: dict[str, Any]) -> list[Row]:
    """Return the table's rows; there is no target."""
    shown: list[Row] = []
    for layout, phases in result["layouts"].items():
        for phase, figures in phases.items():
            shown.append(Row(name=f"{layout} {phase}, share", value=figures["share"]))
    off = result["engine"]["criteria_first"]["score"]["share"]
    counted = result["engine_by_arithmetic"]["criteria_first"]["score"]["share"]
    shown.append(Row(name="engine less arithmetic, share", value=off - counted))
    for router, by_count in result["routing"].items():
        for count, figures in by_count.items():
            name = f"{router} over {count}"
            shown.append(Row(name=f"{name}, share", value=figures["score_share"]))
            spread = figures["computed_largest_over_mean"]
            shown.append(Row(name=f"{name}, largest over mean", value=spread))
    return shown


PART = Part(name="prefix_cache", measure=measure, rows=rows)
