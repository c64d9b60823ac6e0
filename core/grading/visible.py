"""The part of a policy's response that is judged and shown to rubric writers.

Policies that think put their reasoning before a closing ``</think>`` tag; some chat templates put
the opening tag into the prompt, so that only the closing one is in the text. The reasoning is
trained on like the rest, but only what comes after it is graded. ``visible_response`` is pure and
idempotent, and its result always stands in the response as it is (quotes of it do too).
"""

_OPEN = "<think>"
_CLOSE = "</think>"


def visible_response(text: str) -> str:
    """Return the text after the reasoning; a text without reasoning comes back unchanged.

    A response is taken to think when it starts with the opening tag, or when a closing tag comes
    before any opening one: an answer that merely mentions the tags stays whole. Reasoning that
    never ends leaves nothing to grade.
    """
    while _thinks(text):
        _, closed, text = text.rpartition(_CLOSE)
        if not closed:
            return ""
        text = text.lstrip()
    return text


def _thinks(text: str) -> bool:
    if text.lstrip().startswith(_OPEN):
        return True
    close = text.find(_CLOSE)
    return close >= 0 and _OPEN not in text[:close]
