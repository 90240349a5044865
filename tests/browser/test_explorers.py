"""Every explorer in JupyterLab in a real browser: run, moved by keyboard, looked at in a wide and a narrow window."""

import pytest

from browser.driver import ANSWER_S, NARROW, ROOT, RUN_S, WIDE
from browser.lab import waited

pytestmark = pytest.mark.browser


class Explorer:
    """What holds for all of them. The tests of a class share one open notebook, in this order."""

    name: str
    same_words: set[str] = set()  # controls that change how things are shown, not what is so
    apart: set[str] = set()  # controls that change no picture by themselves; they have a test of their own
    slow: set[str] = set()  # controls whose picture takes computing

    def prepare(self, notebook):
        """What has to be done before every control has a picture to change."""

    @pytest.fixture(autouse=True)
    def _nothing_goes_wrong(self, notebook):
        yield
        assert notebook.errors() == []

    def test_it_runs_and_shows_a_picture(self, notebook):
        assert notebook.pictures()
        assert notebook.words()

    @pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
    def test_nothing_is_cut_off_or_out_of_reach(self, notebook, kept, size):
        notebook.screenshot(kept / f"{self.name}_{size[0]}.png", size[0])
        notebook.resize(*size)
        wrong = notebook.misplaced()
        notebook.resize(*WIDE)
        assert wrong == []

    def test_tab_reaches_every_control_in_the_order_of_the_page(self, notebook):
        wanted = [each for each in notebook.controls() if not each.off]
        assert [*map(str, notebook.tab_order())] == [*map(str, wanted)]

    def test_every_control_moves_the_picture_and_back(self, notebook):
        """By keyboard alone: one step on gives another picture, and one step back the same as before."""
        self.prepare(notebook)
        for each in notebook.controls():
            if each.kind != "button" and not each.off and not each.only and each.label not in self.apart:
                self.moves_it_and_back(notebook, each)

    def moves_it_and_back(self, notebook, control):
        before = notebook.shown()
        after = notebook.follows(control, within=RUN_S if control.label in self.slow else ANSWER_S)
        if control.label not in self.same_words:
            assert after.words != before.words, f"{control}: another picture, and the same words under it"
        assert notebook.back(control) == before, f"{control}: put back, and the picture is another than it was"


def test_every_explorer_has_its_tests():
    there = {path.stem for path in (ROOT / "notebooks" / "explore").glob("*.ipynb")}
    assert there == {tested.name for tested in Explorer.__subclasses__()}


class TestSpectra(Explorer):
    name = "a_spectra"
    line = "cut at r (drag the line, or ← →):"

    def ratio(self, notebook):
        return float(notebook.value(notebook.control("cut ratio r")))

    def test_the_line_is_dragged_and_the_cut_goes_with_it(self, notebook):
        """To the right: a larger ratio, more frequencies taken."""
        before, ratio, line = notebook.settle(), self.ratio(notebook), notebook.control(self.line)
        at = notebook.place(line)["x"]
        after = notebook.drag(line, right=60)
        assert notebook.place(line)["x"] == pytest.approx(at + 60, abs=6)
        assert self.ratio(notebook) > ratio
        assert after.pictures != before.pictures and after.words != before.words

    def test_the_line_stays_on_its_place_in_the_picture_when_that_shrinks(self, notebook):
        shares = []
        for size in (WIDE, NARROW):
            notebook.resize(*size)
            line, picture = notebook.place(notebook.control(self.line)), notebook.area.locator("img").bounding_box()
            shares.append((line["x"] + line["width"] / 2 - picture["x"]) / picture["width"])
            assert picture["y"] < line["y"] and line["y"] + line["height"] < picture["y"] + picture["height"]
        notebook.resize(*WIDE)
        assert shares[0] == pytest.approx(shares[1], abs=0.01)

    def test_collecting_is_started_and_stopped_and_what_is_finished_can_be_seen(self, notebook):
        assert "FedGAMMA" not in notebook.options("method")
        notebook.area.get_by_text("Collect new probes").click()
        notebook.write("rounds", "400")
        notebook.press_button("Collect")
        assert notebook.says(r"round \d+ of 400, about \d+ (s|min) left")
        notebook.press_button("Stop")
        assert notebook.says(r"stopped after \d+ of 400 rounds")
        notebook.settle()
        assert "FedGAMMA" in notebook.options("method")


class TestFilters(Explorer):
    name = "b_filters"

    def test_the_shape_of_a_layer_can_be_chosen_where_the_filter_sees_it(self, notebook):
        """A vector has one weight for each output and passes; a matrix has rows, which are centralised."""
        first = notebook.options("filter")[0]
        notebook.choose("filter", "Centralize")
        self.moves_it_and_back(notebook, notebook.control("taken as"))
        notebook.choose("filter", first)

    def test_every_filter_has_its_picture(self, notebook):
        filters = notebook.options("filter")
        seen = [notebook.choose("filter", each) for each in filters]
        assert len(filters) > 5 and len(set(seen)) == len(filters)
        notebook.choose("filter", filters[0])

    def test_points_are_drawn_by_hand(self, notebook):
        """Each of them by arrow keys, and one with the mouse: upwards is more."""
        notebook.choose("signal", "drawn by hand")
        points = [each for each in notebook.controls() if each.label.isdigit()]
        assert len(points) > 5
        for each in points:
            notebook.follows(each)
        before, value = notebook.shown(), float(notebook.value(points[1]))
        assert notebook.drag(points[1], down=-30).pictures != before.pictures
        assert float(notebook.value(points[1])) > value

    def test_a_layer_of_a_probe_has_its_choices(self, notebook):
        notebook.choose("signal", "a layer of a probe")
        for label in ("run", "round", "vector", "client", "layer"):
            self.moves_it_and_back(notebook, notebook.control(label))


class TestPartitions(Explorer):
    name = "c_partitions"
    same_words = {"order", "colour", "minimum"}  # every client has more than the least number already

    @pytest.mark.parametrize(
        "kind, label", [("pathological", "classes"), ("dirichlet-equal", "first class never drawn")]
    )
    def test_other_kinds_bring_controls_of_their_own(self, notebook, kind, label):
        assert label not in [each.label for each in notebook.controls()]
        notebook.choose("kind", kind)
        self.moves_it_and_back(notebook, notebook.control(label))
        notebook.choose("kind", "dirichlet")


class TestLiveRun(Explorer):
    name = "d_live_run"

    def prepare(self, notebook):
        """Both methods have run: any other setting has other curves, or none yet."""
        notebook.write("rounds", "4")
        notebook.settle()
        notebook.press_button("Start")
        assert notebook.says(r"(?s)round 4 of 4: .*round 4 of 4: .*") and notebook.says("finished")
        notebook.settle()

    def grows(self, notebook):
        """Whether another picture comes, without a hand on anything."""
        return notebook.changes(notebook.pictures())

    def test_it_is_started_paused_resumed_and_kept(self, notebook):
        notebook.write("rounds", "60")
        notebook.settle()
        notebook.press_button("Start")
        assert self.grows(notebook) and self.grows(notebook)
        assert notebook.says(r"\d+ of 120 rounds, about \d+ (s|min) left")
        notebook.press_button("Pause")
        assert notebook.says(r"paused after \d+ of 120 rounds")
        at_rest = notebook.settle()
        notebook.page.wait_for_timeout(2000)
        assert notebook.shown() == at_rest
        notebook.press_button("Resume")
        assert self.grows(notebook)
        assert waited(lambda: notebook.words() != at_rest.words, ANSWER_S)  # they come after the picture
        notebook.press_button("Pause")
        assert notebook.says(r"paused after \d+ of 120 rounds")
        notebook.press_button("Keep")
        assert notebook.says(r"fednb show \w{6}")


class TestLandscape(Explorer):
    name = "e_landscape"
    same_words = {"kind", "log scale", "angle", "height"}
    apart = {"first run", "second run"}
    slow = {"radius", "directions"}

    def test_runs_are_swapped(self, notebook):
        """A run beside itself is refused in words and the picture stays; the other way round it is another picture."""
        before = notebook.shown()
        first, second = (notebook.chosen(label) for label in ("first run", "second run"))
        refused = notebook.choose("first run", second)
        assert "choose two different ones" in refused.words and refused.pictures == before.pictures
        notebook.choose("second run", first)
        assert notebook.changes(before.pictures)
        assert notebook.settle().words not in (before.words, refused.words)
        notebook.choose("first run", first)
        notebook.choose("second run", second)
        assert notebook.becomes(before.pictures) and notebook.settle() == before

    def test_a_surface_is_turned(self, notebook):
        notebook.choose("kind", "surface")
        for label in ("angle", "height"):
            self.moves_it_and_back(notebook, notebook.control(label))
        notebook.choose("kind", "contours")

    def test_computing_is_stopped_and_goes_on(self, notebook):
        before = notebook.shown()
        notebook.write("directions", "7")
        notebook.press_as_soon_as_it_can_be("Stop")
        assert notebook.says("stopped; finished rows are kept")
        assert notebook.shown() == before
        notebook.press_button("Go on")
        assert notebook.changes(before.pictures)
