"""An explorer on the published site in a real browser: moved by keyboard, without a kernel, a server or a network."""

import pytest
from made_site import HEAD, make, put
from made_site import book as made_book
from test_site_moving import explorer

from fednb.show.site.publish import publish
from fednb.study.folders import page_folder

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of an explorer in a published folder: a slider x over -1, 0, 2, 3, and a choice of its power."""
    root = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        make(root, patch)
        put(page_folder("made/01_one", "smoke") / "executed.ipynb", made_book(HEAD, explorer()))
        publish(root / "site")
    return (root / "site" / "notebooks" / "made" / "01_one.html").as_uri()


@pytest.fixture
def page(browser, address):
    """The page, opened; it must load nothing from elsewhere and raise no error."""
    opened, asked, errors = browser.new_page(), [], []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(address)
    yield opened
    opened.close()
    assert errors == [] and [url for url in asked if not url.startswith("file:")] == []


def shown(page):
    """What is seen of the explorer: the words of its picture, and whether that is loaded; or the words in its place."""
    state = page.locator(".explorer .state:visible")
    assert state.count() == 1
    picture = state.locator("img")
    if not picture.count():
        return state.inner_text(), False
    picture.evaluate("each => each.decode()")
    return picture.get_attribute("alt"), picture.evaluate("each => each.naturalWidth > 0 && each.offsetWidth > 0")


def test_a_slider_moves_the_picture_by_keyboard(page):
    assert not page.get_by_text("The controls need JavaScript.").is_visible()
    slider = page.get_by_label("x", exact=True)
    assert shown(page) == ("Powers; x 2, power 1. 2", True)
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert shown(page) == ("Powers; x 3, power 1. 3", True)
    assert page.locator(".explorer output").inner_text() == slider.get_attribute("aria-valuetext") == "3"
    page.keyboard.press("ArrowLeft")
    assert shown(page) == ("Powers; x 2, power 1. 2", True)


def test_a_choice_moves_the_picture_by_keyboard(page):
    page.get_by_label("power", exact=True).focus()
    page.keyboard.press("ArrowDown")
    assert shown(page) == ("Powers; x 2, power 2. 4", True)
    page.keyboard.press("End")
    assert shown(page) == ("Powers; x 2, power 3. 8", True)


def test_a_control_that_does_not_matter_is_hidden_and_keeps_its_value(page):
    power, slider = page.get_by_label("power", exact=True), page.get_by_label("x", exact=True)
    power.select_option("3")
    slider.press("Home")
    assert shown(page) == ("x < 0: choose another", False) and not power.is_visible()
    slider.press("ArrowRight")
    assert shown(page) == ("Powers; x 0. 0", True) and not power.is_visible()
    slider.press("End")
    assert shown(page) == ("Powers; x 3, power 3. 27", True) and power.is_visible()


def test_tab_reaches_the_controls_and_the_focus_is_seen(page):
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        name, line = page.evaluate(
            "() => [document.activeElement.dataset.move, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if name:
            assert line == "solid"
            reached.append(name)
    assert reached[:2] == ["x", "power"]


def test_without_javascript_there_is_one_picture_and_a_line_that_says_so(browser, address):
    context = browser.browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(address)
        assert page.locator(".explorer .state:visible img").get_attribute("alt") == "Powers; x 2, power 1. 2"
        assert page.locator(".explorer .state:visible").count() == 1
        assert page.get_by_text("The controls need JavaScript.").is_visible()
        assert not page.get_by_label("power", exact=True).is_visible()
    finally:
        context.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    boxes = page.locator(".explorer :is(input, select, output, img):visible")
    assert boxes.count() >= 4
    for box in boxes.all():
        place = box.bounding_box()
        assert place["x"] >= 0 and place["x"] + place["width"] <= width
