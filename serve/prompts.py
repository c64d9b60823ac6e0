"""Reads prompt templates from the ``prompts`` package, wherever it is installed."""

from importlib.resources import files


def load_prompt(name: str) -> str:
    """Return the template ``prompts/NAME.txt``; FileNotFoundError names the missing file."""
    return files("prompts").joinpath(f"{name}.txt").read_text(encoding="utf-8")
