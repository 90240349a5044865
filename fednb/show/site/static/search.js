// Search over all pages. Works from a local folder: the index is a script, not a request. filter.js comes before it.
"use strict";
const root = document.body.dataset.root, MOST = 24;
const box = document.getElementById("search"), list = document.getElementById("results");
let chosen = -1, asked = false;

// The index is loaded when somebody begins to search.
function load() {
  if (asked) return;
  asked = true;
  const script = document.createElement("script");
  script.src = root + "search-index.js";
  script.onload = show;
  document.head.append(script);
}

const WORTH = { method: 6, paper: 5, notebook: 4, api: 4, claim: 3, reading: 2, heading: 1 };

// Every word must be there; one in the title, and at its beginning, counts for more.
function score([kind, title, , text], words) {
  const head = plain(title), body = plain(text);
  let sum = WORTH[kind] || 0;
  for (const word of words) {
    if (head === word) sum += 60;
    else if (head.startsWith(word)) sum += 40;
    else if (head.includes(" " + word)) sum += 25;
    else if (head.includes(word)) sum += 15;
    else if (body.includes(word)) sum += 3;
    else return 0;
  }
  return sum;
}

// The words of a text around the first hit, hits marked.
function bit(text, words) {
  const at = Math.max(0, Math.min(...words.map(w => plain(text).indexOf(w)).filter(i => i >= 0), text.length) - 50);
  const part = (at ? "… " : "") + text.slice(at, at + 160) + (at + 160 < text.length ? " …" : "");
  return marked(part, words);
}

function marked(text, words) {
  const out = document.createDocumentFragment();
  const parts = words.map(w => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  for (const [i, piece] of text.split(new RegExp(`(${parts})`, "gi")).entries()) {
    const node = document.createElement(i % 2 ? "mark" : "span");
    node.textContent = piece;
    out.append(node);
  }
  return out;
}

function line([kind, title, url, text], words, i) {
  const item = document.createElement("li"), link = document.createElement("a");
  item.id = "result-" + i;
  item.setAttribute("role", "option");
  link.href = root + url;
  link.tabIndex = -1;
  const label = Object.assign(document.createElement("span"), { className: "kind", textContent: kind });
  const below = Object.assign(document.createElement("span"), { className: "bit" });
  below.append(bit(text, words));
  link.append(label, marked(title, words), below);
  item.append(link);
  return item;
}

function show() {
  const words = wordsOf(box.value), index = window.fednbIndex;
  chosen = -1;
  list.replaceChildren();
  const open = words.length > 0 && Boolean(index);
  if (open) {
    const hits = index.map(entry => [score(entry, words), entry]).filter(([s]) => s > 0).sort((a, b) => b[0] - a[0]);
    hits.slice(0, MOST).forEach(([, entry], i) => list.append(line(entry, words, i)));
    if (!hits.length) list.append(Object.assign(document.createElement("li"), { className: "none", textContent: "Nothing found." }));
    if (hits.length) choose(0);
  }
  list.hidden = !open;
  box.setAttribute("aria-expanded", String(open));
  if (!open) box.removeAttribute("aria-activedescendant");
}

function choose(i) {
  const items = [...list.querySelectorAll("[role=option]")];
  if (!items.length) return;
  chosen = (i + items.length) % items.length;
  items.forEach((item, at) => item.setAttribute("aria-selected", String(at === chosen)));
  items[chosen].scrollIntoView({ block: "nearest" });
  box.setAttribute("aria-activedescendant", items[chosen].id);
}

function close() {
  list.hidden = true;
  box.setAttribute("aria-expanded", "false");
}

box.addEventListener("focus", load);
box.addEventListener("input", show);
box.addEventListener("keydown", event => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (list.hidden) show();
    else choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
  } else if (event.key === "Enter" && !list.hidden) {
    const link = list.querySelector("[aria-selected=true] a");
    if (link) { close(); location.href = link.href; }
  } else if (event.key === "Escape") {
    close();
  }
});
document.addEventListener("click", event => { if (!event.target.closest(".search")) close(); });
list.addEventListener("click", event => { if (event.target.closest("a")) close(); });
document.addEventListener("keydown", event => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    box.focus();
    box.select();
  }
});
