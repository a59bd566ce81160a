// Keys: `/` searches, `j` and `k` move, `Enter` opens, arrows close and open in a tree, `e` finds the next error, `a` goes to
// the form of a decision, `?` lists the keys. No key decides anything.
import { isBelowClosed } from "./live.js";

const ROWS = "tr.run a.target, .inbox nav li a, a.tree-row, [data-row]";

const rows = () => [...document.querySelectorAll(ROWS)].filter((row) => !row.hidden && row.offsetParent !== null);

function focus(row) {
  if (!row) return;
  if (row.matches(".tree-row")) {
    for (const other of row.parentElement.querySelectorAll(".tree-row")) other.tabIndex = other === row ? 0 : -1;
  }
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

function move(by) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  const selected = all.findIndex((row) => row.getAttribute("aria-selected") === "true" || row.hasAttribute("aria-current"));
  const from = at >= 0 ? at + by : selected >= 0 ? selected + by : 0;
  focus(all[Math.max(0, Math.min(from, all.length - 1))]);
}

function nextError() {
  const all = rows();
  const from = all.indexOf(document.activeElement) + 1;
  const isError = (row) => /failed|rejected/.test(row.dataset.status ?? row.closest("[data-status]")?.dataset.status ?? "");
  focus(all.slice(from).find(isError) ?? all.find(isError));
}

const level = (row) => Number(row.getAttribute("aria-level"));

function below(row) {
  const found = [];
  for (let next = row.nextElementSibling; next && level(next) > level(row); next = next.nextElementSibling) found.push(next);
  return found;
}

/** Closes or opens a row of a tree, or goes to its parent or first child. */
function fold(row, opens) {
  const isOpen = row.getAttribute("aria-expanded") === "true";
  const children = below(row);
  if (opens && row.hasAttribute("aria-expanded") && !isOpen) {
    if (!children.length) return row.click();
    row.setAttribute("aria-expanded", "true");
    delete row.dataset.closed;
    row.querySelector(".arrow").textContent = "▾";
    // From the top: what is below another closed row stays hidden.
    children.forEach((child) => (child.hidden = isBelowClosed(child)));
  } else if (opens) focus(children[0]);
  else if (isOpen) {
    row.setAttribute("aria-expanded", "false");
    row.dataset.closed = "true";
    row.querySelector(".arrow").textContent = "▸";
    children.forEach((child) => (child.hidden = true));
  } else {
    let parent = row.previousElementSibling;
    while (parent && level(parent) >= level(row)) parent = parent.previousElementSibling;
    focus(parent);
  }
}

/** Listens to the keys of pages. */
export function listen() {
  const list = document.getElementById("keys");
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-keys]")) list?.showModal();
    // The arrow of a row folds it; the rest of the row selects it.
    const arrow = event.target.closest(".tree-row .arrow");
    const row = arrow?.closest(".tree-row");
    if (row?.hasAttribute("aria-expanded") && below(row).length) {
      event.preventDefault();
      event.stopImmediatePropagation();
      fold(row, row.getAttribute("aria-expanded") !== "true");
    }
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const row = event.target.closest(".tree-row");
    const actions = {
      "/": () => document.querySelector("[data-search]")?.focus(),
      j: () => move(1),
      k: () => move(-1),
      e: nextError,
      a: () => document.querySelector("#decision :is(input, textarea, select, button):not([type=hidden], :disabled)")?.focus(),
      "?": () => list?.showModal(),
      ArrowDown: row && (() => move(1)),
      ArrowUp: row && (() => move(-1)),
      ArrowLeft: row && (() => fold(row, false)),
      ArrowRight: row && (() => fold(row, true)),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
