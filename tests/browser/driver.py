"""A notebook in a real browser: run it, find its explorer's controls, move them by keyboard, see what follows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from browser.lab import Lab, waited

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ROOT = Path(__file__).parents[2]
WIDE, NARROW = (1400, 900), (1024, 768)  # windows, in pixels
RUN_S = 120  # an explorer is ready in 5 to 20 s; more only on a machine with other work
ANSWER_S = 60  # a picture follows its control in well under a second; more only as above
SETTLED_S = 0.2  # nothing new for so long: what is shown belongs to the last move
KEYS = {  # one step on, one step back
    "slider": (("ArrowRight",), ("ArrowLeft",)),  # up and down would choose another cell of the notebook
    "select": (("Space", "ArrowDown", "Enter"), ("Space", "ArrowUp", "Enter")),  # and letters are commands to it
    "number": (("ArrowUp", "Enter"), ("ArrowDown", "Enter")),
    "radio": (("ArrowRight",), ("ArrowLeft",)),
    "checkbox": (("Space",), ("Space",)),
}
VALUE = """each => each.getAttribute('aria-valuetext')
    ?? (['checkbox', 'radio'].includes(each.type) ? each.checked : each.value)"""
READY = "() => document.querySelector('.jp-StatusBar-Left')?.innerText.includes('| Idle')"
RAN = """() => {
    const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(each => each.innerText);
    const failed = document.querySelector('[data-mime-type="application/vnd.jupyter.error"]');
    return failed || prompts.length && prompts.every(each => /\\d/.test(each));
}"""
WRONG = (
    "[data-mime-type='application/vnd.jupyter.error'], [data-mime-type='application/vnd.jupyter.stderr'],"
    ".jupyter-widgets-error-widget, :text('Error displaying widget'), :text('Loading widget')"
)
ERROR_FRAME = re.compile(rb'"msg_type":\s*"error"')
ERROR_TEXT = re.compile(rb'"ename":\s*"(.*?)",\s*"evalue":\s*"(.*?)"')


class DidNotFollow(AssertionError):
    """A control was moved and what is shown stayed as it was."""


class Shown(NamedTuple):
    """What a reader sees of an explorer's answer."""

    pictures: str  # fingerprint of their bytes: a new address with the same bytes is no new picture
    words: str


@dataclass(frozen=True)
class Control:
    """One thing that a hand can move."""

    label: str
    kind: str  # slider, select, text, number, checkbox, radio, button
    place: int  # among all that page.js calls handles
    group: str = ""  # of a button that is one of several answers
    off: bool = False
    only: bool = False  # a list with one thing to choose

    def __str__(self) -> str:
        return f"{self.group}: {self.label}" if self.group else self.label


class Notebook:
    """A notebook opened in a browser page."""

    def __init__(self, page: Page, lab: Lab, name: str) -> None:
        self.page, self.lab, self.name = page, lab, name
        self.heard: list[str] = []  # errors that the kernel or the page spoke of, shown in a cell or not
        self._moved: dict[Control, tuple[Any, int]] = {}  # value before the last move, and which way that went
        page.add_init_script(path=Path(__file__).with_name("page.js"))
        page.on("pageerror", lambda error: self.heard.append(f"page: {error}"))
        page.on("websocket", lambda socket: socket.on("framereceived", self._listen))

    def _listen(self, frame: str | bytes) -> None:
        """An error in a control's handler reaches no cell: it is heard here."""
        data = frame.encode() if isinstance(frame, str) else frame
        if ERROR_FRAME.search(data):
            said = ERROR_TEXT.search(data)
            self.heard.append("kernel: " + (": ".join(part.decode() for part in said.groups()) if said else "error"))

    def open(self) -> None:
        """In JupyterLab, with a kernel that is ready."""
        self.page.goto(self.lab.address(f"{self.name}.ipynb"))
        self.page.wait_for_function(READY, timeout=RUN_S * 1000)

    def run(self) -> None:
        """Run > Run All Cells; every cell has its number when this returns, or one shows an error."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).click()
        self.page.get_by_text("Run All Cells", exact=True).click()
        self.page.wait_for_function(RAN, timeout=RUN_S * 1000)
        self.settle()

    def errors(self) -> list[str]:
        """What went wrong so far: in cells, in widgets, in handlers."""
        return [*self.heard, *(f"shown: {text[-400:]}" for text in self.page.locator(WRONG).all_inner_texts())]

    @property
    def area(self) -> Locator:
        """The output of the cell that shows the explorer."""
        return self.page.locator(".jp-OutputArea-output", has=self.page.locator(".jupyter-widgets")).last

    def controls(self) -> list[Control]:
        """What can be seen and moved now, in the order of the page."""
        return [Control(**each) for each in self.area.evaluate("area => fednb.controls(area)")]

    def control(self, label: str) -> Control:
        """The first control with this label."""
        for each in self.controls():
            if each.label == label:
                return each
        raise AssertionError(f"{self.name} has no control {label!r}; it has: {', '.join(map(str, self.controls()))}")

    def handle(self, control: Control) -> Locator:
        """The control in the page."""
        return self.area.locator(self.page.evaluate("fednb.HANDLES")).nth(control.place)

    def value(self, control: Control) -> Any:
        """What the control says, as the page knows it."""
        return self.handle(control).evaluate(VALUE)

    def pictures(self) -> str:
        return self.area.evaluate("area => fednb.digests(area)") if self.area.count() else ""

    def words(self) -> str:
        """What is written under the picture."""
        return " ".join(self.area.locator("[aria-live], [role=alert]").all_inner_texts())

    def shown(self) -> Shown:
        return Shown(self.pictures(), self.words())

    def busy(self) -> bool:
        return self.page.locator(".jp-Notebook-ExecutionIndicator").first.get_attribute("data-status") != "idle"

    def settle(self) -> Shown:
        """Wait until the kernel rests and nothing new comes; what is shown then."""
        last: tuple[bool, Shown] | None = None

        def still() -> bool:
            nonlocal last
            before, last = last, (self.busy(), self.shown())
            return before == last and not last[0]

        assert waited(still, RUN_S, every=SETTLED_S), f"{self.name} does not come to rest"
        return self.shown()

    def follows(self, control: Control, within: float = ANSWER_S) -> Shown:
        """From rest, move a control one step and wait for another picture; what is shown at rest again."""
        before = self.pictures()
        self.move(control)
        if not waited(lambda: self.pictures() != before, within):
            raise DidNotFollow(f"{self.name}: {control} was moved and the picture did not change within {within} s")
        return self.settle()

    def move(self, control: Control) -> None:
        """One step by keyboard, the way its kind is moved; backwards at the end of its range."""
        before = self.value(control)
        for way, keys in enumerate(KEYS[control.kind]):
            self._moved[control] = before, way
            self.press(control, *keys)
            if self.value(control) != before:
                return
        raise AssertionError(f"{self.name}: {control} is moved by none of {KEYS[control.kind]}")

    def back(self, control: Control) -> Shown:
        """To where it was before its last move, which gave another picture; what is shown when that has gone."""
        before, way = self._moved[control]
        moved = self.pictures()
        if control.kind in ("text", "number"):
            self._type(control, str(before))
        else:
            self.press(control, *KEYS[control.kind][1 - way])
        assert self.value(control) == before, f"{self.name}: {control} does not go back to {before}"
        waited(lambda: self.pictures() != moved, ANSWER_S)
        return self.settle()

    def press(self, control: Control, *keys: str) -> None:
        """Keys, one after the other, with the focus on a control."""
        handle = self.handle(control)
        handle.focus()
        for key in keys:
            handle.press(key)

    def drag(self, control: Control, right: float = 0, down: float = 0) -> Shown:
        """Take a handle with the mouse and move it so many pixels; what is shown when it rests."""
        place = self.place(control)
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + right, y + down, steps=5)
        self.page.mouse.up()
        self.page.wait_for_timeout(200)  # the last of several moves is sent when the others are answered
        return self.settle()

    def place(self, control: Control) -> dict[str, float]:
        """Where a control is in the window: x, y, width, height."""
        handle = self.handle(control)
        handle.scroll_into_view_if_needed()
        return handle.bounding_box()

    def choose(self, label: str, option: str) -> Shown:
        """An option of the list with this label; what is shown then, which is something else if the option is."""
        before, other = self.shown(), option != self.chosen(label)
        self.handle(self.control(label)).select_option(label=option)
        if other and not waited(lambda: self.shown() != before, ANSWER_S):
            raise DidNotFollow(f"{self.name}: {option} was chosen as {label} and nothing else is shown")
        return self.settle()

    def becomes(self, pictures: str) -> bool:
        """Whether these pictures come, however long they are computed."""
        return waited(lambda: self.pictures() == pictures, RUN_S)

    def changes(self, pictures: str) -> bool:
        """Whether others than these pictures come, however long they are computed."""
        return waited(lambda: self.pictures() != pictures, RUN_S)

    def options(self, label: str) -> list[str]:
        """What the list with this label offers."""
        return self.handle(self.control(label)).locator("option").all_inner_texts()

    def chosen(self, label: str) -> str:
        """What is chosen in the list with this label."""
        return self.handle(self.control(label)).evaluate("list => list.selectedOptions[0].text")

    def press_button(self, label: str) -> None:
        """With the mouse, once it can be pressed."""
        self.handle(self.control(label)).click()

    def press_as_soon_as_it_can_be(self, label: str) -> None:
        """By the page itself, for what may be over before a mouse is there."""
        button = self.handle(self.control(label)).element_handle()
        self.page.wait_for_function("button => !button.disabled && (button.click(), true)", arg=button)

    def says(self, text: str, within: float = RUN_S) -> bool:
        """Whether the explorer comes to show some words."""
        return waited(lambda: re.search(text, self.area.inner_text()), within)

    def write(self, label: str, text: str) -> None:
        """Into the field with this label, or beside the slider with this label."""
        self._type(self.control(label), text)

    def _type(self, control: Control, text: str) -> None:
        field = self.handle(control)
        if control.kind == "slider":
            field = field.locator("xpath=ancestor::*[contains(@class, 'widget-slider')]").locator(".widget-readout")
        field.fill(text)
        field.press("Enter")

    def tab_order(self) -> list[Control]:
        """The controls in the order in which Tab reaches them, from the explorer's cell on."""
        self.area.evaluate("area => area.closest('.jp-Cell').focus()")
        reached: list[int] = []
        everything = {each.place: each for each in self.controls()}
        for _ in range(20 + 3 * len(everything)):
            self.page.keyboard.press("Tab")
            place = self.area.evaluate("area => fednb.focused(area)")
            if place >= 0 and place not in reached[-1:]:
                reached.append(place)
            if place < 0 and reached:
                break
        return [everything[place] for place in reached]

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_timeout(300)  # JupyterLab lays out its panels again

    def misplaced(self) -> list[str]:
        """What of the explorer is cut off, covered or outside the window."""
        return self.area.evaluate("area => fednb.misplaced(area)")

    def screenshot(self, file: Path, width: int) -> None:
        """In a window of this width that is high enough for the whole explorer, and stays so."""
        self.resize(width, 2000)
        if self.area.count():
            self.area.evaluate("area => area.closest('.jp-Cell').scrollIntoView()")
        self.page.screenshot(path=file)
