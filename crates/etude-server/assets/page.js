// What pages do besides being documents. Each part works without the others.
import { follow, refresh, visit } from "./live.js";
import { count } from "./count.js";
import { zoom } from "./graph.js";
import { listen } from "./keys.js";

// The server writes times in the reader's zone; without this cookie, in UTC.
const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC");
const isKnown = document.cookie.split("; ").includes(`etude_zone=${zone}`);
if (!isKnown) {
  document.cookie = `etude_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
  refresh();
}

const reveal = (root) => root.querySelectorAll("[data-copy], [data-keys]").forEach((button) => (button.hidden = false));
reveal(document);
document.addEventListener("etude:refreshed", () => reveal(document));

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const scope = button.closest("section, .fold, .command, .empty");
  const copy = scope?.querySelector("[data-copied], code")?.cloneNode(true);
  // What stands for a hidden character is that character again.
  copy?.querySelectorAll("[data-code]").forEach((one) => (one.textContent = String.fromCodePoint(Number(one.dataset.code))));
  const text = copy?.textContent ?? "";
  await navigator.clipboard?.writeText(text).catch(() => undefined);
  button.textContent = "Copied";
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// A form is sent once. What comes back from the browser's memory is another form.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "true";
  // Its button belongs to what is sent.
  setTimeout(() => form.querySelectorAll("button:enabled").forEach((button) => (button.disabled = button.dataset.sent = true)));
});
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted) return;
  for (const form of document.querySelectorAll("form[data-sent]")) {
    delete form.dataset.sent;
    form.querySelectorAll("button[data-sent]").forEach((button) => (button.disabled = false));
    const once = form.querySelector("input[name=key]");
    if (once) once.value = crypto.getRandomValues(new Uint32Array(4)).join("-");
  }
});

// A menu closes when something else is chosen, or by `Escape`.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
});

// A node of a tree is selected in place; the address is that of a page that shows the same.
document.addEventListener("click", (event) => {
  const row = event.target.closest?.("a.tree-row");
  if (!row || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  visit(row.href).then(() => {
    const details = document.getElementById("details");
    // Beside the tree, they are in view already.
    if (details && getComputedStyle(details).position !== "sticky") details.scrollIntoView();
  });
});
addEventListener("popstate", () => (document.querySelector("[data-tree]") ? visit() : refresh()));

listen();
zoom();
count();
follow();
