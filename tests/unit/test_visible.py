"""What of a response is graded when the policy thinks."""

import pytest

from core.grading.visible import visible_response


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("A plain answer.", "A plain answer."),
        ("  A plain answer.\n", "  A plain answer.\n"),
        ("<think>plan</think>\n\nThe answer.", "The answer."),
        ("plan, opened by the template\n</think>\nThe answer.", "The answer."),
        ("<think>draft </think> more </think>The answer.", "The answer."),
        ("<think>it never ends", ""),
        ("<think>a</think><think>b", ""),
        ("Use <think> and </think> around it.", "Use <think> and </think> around it."),
        ("", ""),
    ],
)
def test_only_what_follows_the_reasoning_is_visible(text: str, visible: str) -> None:
    assert visible_response(text) == visible
    assert visible_response(visible) == visible
    assert visible in text
