"""One file a benchmark: rows in, tasks and judge calls out; verdicts in, scores out. Pure."""
