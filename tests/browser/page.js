// What the test asks of a page with an explorer. `area` is the output of the explorer's cell.
window.fednb = (() => {
  // Everything a hand can move: a slider's handle, a box to tick, something to choose, to type in or to press.
  const HANDLES = [
    ".widget-slider .noUi-handle",
    ".widget-dropdown select",
    ".widget-select select",
    ".widget-text input",
    ".widget-checkbox input",
    ".widget-radio input",
    "button.jupyter-button",
  ].join(", ");
  const ONE_CONTROL =
    ".widget-inline-hbox, .widget-inline-vbox, .widget-checkbox, .widget-radio, .widget-toggle-buttons";

  const seen = (each) => each.getClientRects().length > 0 && getComputedStyle(each).visibility === "visible";
  const handles = (area) => [...area.querySelectorAll(HANDLES)];
  const pictures = (area) => [...area.querySelectorAll("img.widget-image")].filter(seen);
  const whole = (handle) => handle.closest(ONE_CONTROL) ?? handle;

  function label(handle) {
    if (handle.tagName === "BUTTON") return (handle.innerText || handle.title).trim();
    const said = handle.closest("label") ?? whole(handle).querySelector(".widget-label") ?? whole(handle);
    return said.innerText.trim();
  }

  function kind(handle) {
    if (handle.classList.contains("noUi-handle")) return "slider";
    return handle.tagName === "INPUT" ? handle.type : handle.tagName.toLowerCase();
  }

  function controls(area) {
    const described = handles(area).map((handle, place) => ({
      label: label(handle),
      kind: kind(handle),
      place,
      group: handle.closest(".widget-toggle-buttons")?.querySelector(".widget-label")?.innerText ?? "",
      off: handle.disabled || handle.closest("[disabled]") !== null,
      only: handle.options?.length === 1,
    }));
    return described.filter((each, place) => seen(handles(area)[place]));
  }

  async function digest(picture) {
    const bytes = await (await fetch(picture.src)).arrayBuffer();
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  const digests = async (area) => (await Promise.all(pictures(area).map(digest))).join(" ");

  // The place of the control that has the focus; a slider's number counts as the slider.
  function focused(area) {
    const at = document.activeElement;
    const all = handles(area);
    if (all.includes(at) || !area.contains(at)) return all.indexOf(at);
    return all.findIndex((each) => whole(each) === at.closest(ONE_CONTROL));
  }

  // Boxes that would have to be scrolled sideways to see all of the explorer.
  function sideways(area) {
    const wrong = [];
    for (let box = area; box; box = box.parentElement)
      if (getComputedStyle(box).overflowX !== "visible" && box.scrollWidth > box.clientWidth + 2)
        wrong.push(`${box.className}: ${box.scrollWidth} px in ${box.clientWidth}`);
    return wrong;
  }

  // The first ancestor that hides part of an element on its left or right, or nothing.
  function cutting(area, element) {
    const place = element.getBoundingClientRect();
    for (let box = element.parentElement; box; box = box.parentElement) {
      const around = box.getBoundingClientRect();
      const out = Math.max(place.right - around.right, around.left - place.left);
      if (out > 1 && getComputedStyle(box).overflowX !== "visible") return `${Math.round(out)} px by ${box.className}`;
    }
  }

  // What lies over the middle of a control, where a mouse would press it.
  function covering(handle) {
    handle.scrollIntoView({ block: "center" });
    const { left, top, width, height } = handle.getBoundingClientRect();
    const hit = document.elementFromPoint(left + width / 2, top + height / 2);
    if (!hit) return "the edge of the window";
    if (!handle.contains(hit) && !hit.contains(handle) && !whole(handle).contains(hit)) return hit.className;
  }

  // Buttons and labels whose text does not fit.
  const shortened = (area) =>
    [...area.querySelectorAll("button, .widget-label")]
      .filter((each) => seen(each) && each.scrollWidth > each.clientWidth + 1)
      .map((each) => `${each.innerText} does not fit its place`);

  function misplaced(area) {
    const wrong = [...sideways(area), ...shortened(area)];
    const movable = handles(area).filter(seen);
    const names = new Map(movable.map((each) => [whole(each), label(each)]));
    for (const picture of pictures(area)) names.set(picture, "picture");
    for (const [element, name] of names) {
      const by = cutting(area, element);
      if (by) wrong.push(`${name} is cut off, ${by}`);
      const { left, right } = element.getBoundingClientRect();
      if (left < 0 || right > innerWidth + 1) wrong.push(`${name} leaves the window`);
    }
    for (const each of movable.filter((one) => !one.disabled)) {
      const by = covering(each);
      if (by) wrong.push(`${label(each)} is covered by ${by}`);
    }
    return wrong;
  }

  return { HANDLES, controls, digests, focused, misplaced };
})();
