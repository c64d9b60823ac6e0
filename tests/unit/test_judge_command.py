import pytest

from drivers import judge


@pytest.mark.parametrize("count", ["0", "two", "1.5"])
def test_a_number_of_replicas_that_none_can_be_is_refused(
    count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        judge.main(["scale", "my_run", count])
    assert ended.value.code == 2
    assert "wanted a whole number of at least 1" in capsys.readouterr().err


def test_no_cluster_is_exit_code_2_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert judge.main(["status"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: got RAY_ADDRESS='127.0.0.1:1' with no Ray cluster there")
    assert error.count("\n") == 1


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        judge.main(["--help"])
    assert "ratchet judge scale my_run 4" in capsys.readouterr().out
