"""Only quotes that really stand in a response are evidence."""

from core.evolution.quotes import quoted, quotes_in

RESPONSE = 'The cat\'s hat. The cat said "no" and left the house at noon, wet and tired.'


def test_verbatim_fragments_are_kept_in_order_and_once() -> None:
    analysis = "See “left the house”, `The cat` and again “left the house”."
    assert quotes_in(analysis, RESPONSE) == ("left the house", "The cat")


def test_invented_or_changed_fragments_are_left_out() -> None:
    assert quotes_in('It says "left the garden" and "THE CAT".', RESPONSE) == ()


def test_an_apostrophe_is_not_a_quotation_mark() -> None:
    assert quoted("It's the cat's fault") == ()
    assert quotes_in("It wrote 'at noon', didn't it?", RESPONSE) == ("at noon",)


def test_long_parts_around_an_ellipsis_count_each() -> None:
    analysis = '"left the house ... wet and tired" and "The … tired"'
    assert quotes_in(analysis, RESPONSE) == ("left the house", "wet and tired")


def test_empty_texts_give_nothing() -> None:
    assert quotes_in("", RESPONSE) == ()
    assert quotes_in('"left the house"', "") == ()
