"""Which language a prompt is in, roughly: by its letters, and for Latin ones by function words.

For a person's overview of a data set; nothing is decided by it. A text whose words do not tell is
``latin``; one without letters is ``none``.
"""

from core.rules.form import script_shares
from core.rules.words import Text

_LOOKED_AT = 2000
"""Characters that tell."""
_MIN_WORDS = 2
_FUNCTION_WORDS = {
    "english": "the of and to in is that for with you are this what how write a",
    "german": "der die das und ist nicht ein eine mit den von zu für auf wie schreibe",
    "french": "le la les et des une est que pour dans pas vous avec du sur écris",
    "spanish": "el los las y una es que por para con del como se su escribe qué",
    "italian": "il gli che di una per con non sono della come nel scrivi è cosa questo",
    "portuguese": "os uma que não para com por como do da em mais escreva você são dos",
    "dutch": "het een van de en is dat niet met voor op zijn hoe schrijf je deze",
}
_WORDS = {name: frozenset(words.split()) for name, words in _FUNCTION_WORDS.items()}


def language_of(text: str) -> str:
    """Return the name of a language, of a writing system, or ``none``."""
    looked_at = Text(text[:_LOOKED_AT])
    script = next(iter(script_shares(looked_at)), "none")
    if script != "latin":
        return script
    words = looked_at.plain.lower().split()
    counts = {
        name: sum(w.strip(".,;:!?\"'()") in own for w in words) for name, own in _WORDS.items()
    }
    best = max(counts, key=lambda name: counts[name])
    is_clear = sum(count == counts[best] for count in counts.values()) == 1
    return best if counts[best] >= _MIN_WORDS and is_clear else script
