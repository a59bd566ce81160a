// What pages do besides being documents. Each part works without the others.
import { follow, refresh } from "./live.js";
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
  const text = scope?.querySelector("[data-copied], code")?.textContent ?? "";
  await navigator.clipboard?.writeText(text).catch(() => undefined);
  button.textContent = "Copied";
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// A menu closes when something else is chosen.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

// A node of a tree is selected in place; the address is that of a page that shows the same.
document.addEventListener("click", (event) => {
  const row = event.target.closest?.("a.tree-row");
  if (!row || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", row.href);
  refresh();
});
addEventListener("popstate", () => refresh());

listen();
zoom();
follow();
