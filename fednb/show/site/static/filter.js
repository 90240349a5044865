// A box that leaves of a long list what has all the words. The search uses its words, too.
"use strict";
const plain = text => text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f]/g, "");
const wordsOf = text => plain(text).split(/\s+/).filter(Boolean);

const find = document.getElementById("find");
if (find) {
  // Not in the rules: each of them names every verdict.
  const textOf = each => plain(each.textContent.replace(each.querySelector(".rule")?.textContent ?? "", ""));
  const things = [...document.querySelectorAll("tr.claim, .gallery figure")].map(each => [each, textOf(each)]);
  find.addEventListener("input", () => {
    const words = wordsOf(find.value);
    let left = 0;
    for (const [each, text] of things) left += !(each.hidden = !words.every(word => text.includes(word)));
    for (const section of document.querySelectorAll("main section"))
      section.hidden = !section.querySelector("tr.claim:not([hidden]), figure:not([hidden])");
    document.getElementById("shown").textContent = words.length ? `${left} of ${things.length}` : "";
  });
}
