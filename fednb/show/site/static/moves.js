// Explorers without a kernel: every picture is in the page, and the controls say which one is shown.
"use strict";
for (const explorer of document.querySelectorAll(".explorer")) {
  const controls = [...explorer.querySelectorAll("[data-move]")];
  const states = [...explorer.querySelectorAll(".state")].map(each => [each, new Map(
    each.dataset.at.split(" ").filter(Boolean).map(said => said.split("=")))]);

  function show() {
    const now = new Map(controls.map(each => [each.dataset.move, String(each.selectedIndex ?? each.value)]));
    const [shown, matters] = states.find(([, at]) => [...at].every(([name, number]) => now.get(name) === number));
    for (const [each] of states) each.hidden = each !== shown;
    for (const control of controls) {
      control.parentElement.hidden = !matters.has(control.dataset.move);
      if (control.type !== "range") continue;
      const label = control.list.options[control.value].label;
      control.nextElementSibling.value = label;
      control.setAttribute("aria-valuetext", label);
    }
  }

  // The other pictures are fetched when a hand comes near.
  const fetchAll = () => { for (const picture of explorer.querySelectorAll("img")) picture.loading = "eager"; };
  for (const event of ["focusin", "pointerenter"]) explorer.addEventListener(event, fetchAll, { once: true });
  explorer.addEventListener("input", show);
  explorer.querySelector(".moves").hidden = false;
  explorer.querySelector(".unmoved").hidden = true;
  show();
}
