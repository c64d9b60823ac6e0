"""Which wording of a negative criterion says what is wanted."""

import pytest

from core.formats.pitfalls import Wording, wording


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Does not claim that the liver produces insulin.", "positive"),
        ("The response doesn\u2019t recommend antibiotics", "positive"),
        ("Avoids mentioning side effects", "positive"),
        ("avoid mentioning them", "positive"),
        ("Refrains from blame", "positive"),
        ("Never confuses mass and weight", "positive"),
        ("Does not mention that friction is neglected", "omission"),
        ("Does not clearly explain the interaction", "omission"),
        ("Does not include a warning", "omission"),
        ("Recommends antibiotics for a cold", "fault"),
        ("Fails to mention allergies", "fault"),
        ("Omits the dose", "fault"),
        ("", "fault"),
    ],
)
def test_a_denied_fault_is_wanted_and_a_denied_telling_is_not(text: str, expected: Wording) -> None:
    assert wording(text) == expected
