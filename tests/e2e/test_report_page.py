"""The report page in a real browser, clicked through at the width of a phone and of a desktop."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drivers import report
from tests.run_example import make_run

pytestmark = pytest.mark.e2e

WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = [make_run(folder / "one"), make_run(folder / "two", num_steps=6)]
    assert report.main([str(run.path) for run in runs]) == 0
    return folder / "comparison.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_every_part_of_the_page_opens_and_no_text_runs_as_markup(
    browser: Any, page_file: Path, width: str
) -> None:
    across, down = WIDTHS[width]
    problems: list[str] = []
    page = browser.new_page(viewport={"width": across, "height": down})
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append("a dialog"), dialog.dismiss()))
    page.goto(page_file.as_uri())

    assert page.locator("svg path.series").count() >= 4  # reward and gold of both runs
    for tab, wanted in (
        ("Criteria", "Mean score by criterion and step"),
        ("Rubrics", "Version 1, from the draw of step 3, by rules"),
        ("Refused edits", "both tags"),
        ("Time and cost", "Evolution: seconds a step, exposed and hidden"),
        ("Overview", "Numbers"),
    ):
        page.get_by_role("tab", name=tab, exact=True).click()
        assert page.get_by_text(wanted).first.is_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
    assert problems == []
    page.close()


def test_a_criterion_and_the_rollout_behind_an_edit_are_one_click_away(
    browser: Any, page_file: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    page.get_by_role("tab", name="Criteria").click()
    page.get_by_role("button", name="[Resist] It does not repeat <b>one word</b>.").click()
    assert "vetoes" in page.locator("#criterion").inner_text()

    page.get_by_role("tab", name="Rubrics").click()
    page.get_by_role("button", name="Rollouts that caused it (1) beside the anchor").click()
    assert "<script>alert(1)</script>" in page.locator("pre").first.inner_text()
    page.get_by_role("button", name="rollout 0, vetoed").first.click()
    assert "0 of 1. seen" in page.locator("dl").first.inner_text()

    page.locator("#run").select_option("1")
    assert page.get_by_role("tab", name="Rubrics").get_attribute("aria-selected") == "true"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_reader_s_colours_and_can_be_switched(
    browser: Any, page_file: Path, scheme: str
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(page_file.as_uri())

    def brightness() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(colour.removeprefix("rgb(").split(",")[0])

    before = brightness()
    assert (before > 128) == (scheme == "light")
    page.get_by_role("button", name="Light or dark").click()
    assert (brightness() > 128) != (before > 128)
    page.close()
