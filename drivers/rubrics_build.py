"""``ratchet rubrics build PROMPTS``: rubrics for queries that have none, or a shared one a task.

In DIR lie ``queries.jsonl`` (the queries in our format, ready for training), ``dropped.jsonl``
(each query or row without a rubric, with the reason), the replies of every model, and for ``task``
the shared rubrics under ``rubrics/``. Every reply is kept before it is used: the same command goes
on after a stop without asking twice, and asks again only for what an endpoint could not give. Exit
code 0 when every call had an answer, 1 when the same command may do better or no rubric came out.
"""

import argparse

from core.rubric import Criterion, Rubric
from drivers.data_files import load_queries
from drivers.model_options import model_config
from drivers.rubrics_build_options import settle
from drivers.rubrics_built import write_built

_STAND_IN = Rubric(criteria=(Criterion(id="rubric", text="will be built"),))
"""Rubric of a row without one, until its own is there."""


def build(args: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from drivers.rubrics_build_queries import build_queries
    from drivers.rubrics_build_tasks import build_tasks

    settle(args)
    stand_in = None if args.how == "task" else _STAND_IN
    loaded = load_queries(args.run, strict=False, stand_in=stand_in)
    queries = loaded.queries[: args.limit]
    make = build_tasks if args.how == "task" else build_queries
    built = make(args, queries, model_config(args, "writer"))
    if built is None:  # a dry run
        return 0
    return write_built(args.out, built, loaded.dropped)
