"""A chat template is text or an existing file, and never a file name taken for text."""

import re
from pathlib import Path

import pytest

from actors.chat_template import policy_tokenizer, prompt_token_ids, read_chat_template
from core.config import RunConfig
from core.errors import ConfigError
from core.query import Message, Query
from drivers.prompt_lengths import fitted_data
from drivers.run_data import RunData
from tests.unit.loop_rig import make_config, make_queries

TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}"


def test_text_is_taken_as_it_is_and_a_file_is_read(tmp_path: Path) -> None:
    text = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert read_chat_template(text) == text
    path = tmp_path / "chat.jinja"
    path.write_text(text)
    assert read_chat_template(str(path)) == text


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wanted a Jinja template or an existing file"):
        read_chat_template(str(tmp_path / "absent.jinja"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a tokenizer of whole words, without a template."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"[UNK]": 0, "user": 1, "word": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(tmp_path)
    return tmp_path


def test_a_model_without_a_template_is_refused_unless_one_is_given(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"without a chat template, wanted one: set policy\.chat"):
        policy_tokenizer(str(model))
    assert policy_tokenizer(str(model), needs_template=False).chat_template is None
    tokenizer = policy_tokenizer(str(model), chat_template=TEMPLATE)
    message = Message(role="user", content="word word")
    assert prompt_token_ids(tokenizer, (message,)) == [1, 2, 2]


def test_a_folder_without_a_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"got model {tmp_path} whose tokenizer cannot be loaded"):
        policy_tokenizer(str(tmp_path))


def test_a_prompt_without_room_for_its_response_is_found_before_the_run(model: Path) -> None:
    config = make_config(
        policy={"model": str(model), "max_model_len": 20, "chat_template": TEMPLATE},
        sampling__max_new_tokens=10,
    )
    queries = tuple(make_queries().values())
    short = tuple(q.model_copy(update={"messages": (say("word " * 9),)}) for q in queries)
    long = short[0].model_copy(update={"id": "long", "messages": (say("word " * 10),)})
    assert fitted_data(config, run_data(short), model) == run_data(short)
    with pytest.raises(ConfigError) as caught:
        fitted_data(config, run_data((*short, long)), model)
    problem = str(caught.value)
    assert problem.startswith("query 'long': got a prompt of 11 tokens (1 such queries in all)")
    assert "wanted at most 10 (policy.max_model_len 20 minus" in problem


def limited(model: Path, **data: object) -> RunConfig:
    """Prompts of at most 9 tokens: the role and each word are one."""
    return make_config(
        policy={"model": str(model), "max_model_len": 64, "chat_template": TEMPLATE},
        data={"train": "unused", "max_prompt_tokens": 9} | data,
    )


def of_tokens(query_id: str, number: int) -> Query:
    query = next(iter(make_queries().values()))
    return query.model_copy(update={"id": query_id, "messages": (say("word " * (number - 1)),)})


def test_a_prompt_over_its_limit_is_named_before_the_run(model: Path) -> None:
    queries = (of_tokens("a", 9), of_tokens("b", 12), of_tokens("c", 10))
    with pytest.raises(
        ConfigError, match=r"'b': got a prompt of 12 tokens \(2 such.* at most data"
    ):
        fitted_data(limited(model), run_data(queries), model)


def test_prompts_over_the_limit_are_left_out_and_change_the_fingerprint(model: Path) -> None:
    config = limited(model, overlong_prompt="skip")
    queries = (of_tokens("a", 9), of_tokens("b", 12), of_tokens("c", 2))
    data = fitted_data(config, run_data(queries), model)
    assert [q.id for q in data.train] == ["a", "c"]
    assert list(data.rubrics) == ["a", "c"]
    assert data.num_overlong == 1
    again = fitted_data(config, run_data(queries), model)
    other = fitted_data(config, run_data((*queries, of_tokens("d", 30))), model)
    assert data.fingerprint == again.fingerprint
    assert len({data.fingerprint, "f", other.fingerprint}) == 3


def test_leaving_prompts_out_never_leaves_less_than_a_step(model: Path) -> None:
    config = limited(model, overlong_prompt="skip")
    queries = (of_tokens("a", 9), of_tokens("b", 12), of_tokens("c", 30))
    with pytest.raises(ConfigError, match=r"got 1 usable queries \(2 have prompts over"):
        fitted_data(config, run_data(queries), model)
    with pytest.raises(ConfigError, match=r"got no usable query \(2 have prompts over"):
        fitted_data(config, run_data(queries[1:]), model)


def say(text: str) -> Message:
    return Message(role="user", content=text)


def run_data(queries: tuple[Query, ...]) -> RunData:
    return RunData(train=queries, eval=(), fingerprint="f")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{", "got messages of the roles user, which the chat template refuses"),
        ("{{ raise_exception('only turns') }}", r"refuses \(only turns\)"),
        ("{{ messages[3].content }}", "refuses"),
        ("{# nothing #}", "makes an empty prompt"),
    ],
)
def test_a_template_that_refuses_a_query_is_named_with_it(
    model: Path, template: str, message: str
) -> None:
    config = make_config(policy={"model": str(model), "chat_template": template})
    queries = tuple(make_queries().values())
    with pytest.raises(ConfigError) as caught:
        fitted_data(config, run_data(queries), model)
    problem = str(caught.value)
    assert problem.startswith(f"query {queries[0].id!r}: got ")
    assert re.search(message, problem)


def test_a_template_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="a file that is no text"):
        read_chat_template(str(path))
