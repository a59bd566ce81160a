// Keeps a page up to date. The server renders everything: a change is a new version of the same page, of which the parts that
// differ are taken over. One tab of a browser has the stream; it tells the others.
const base = document.body.dataset.base ?? "";
const policy = globalThis.trustedTypes?.createPolicy("etude", { createHTML: (text) => text }) ?? { createHTML: (text) => text };
const GAP_MS = 500;
const HIDDEN_MS = 60_000;

let pending = null;
let isDue = false;

/** Reads the page again and takes over what differs. */
export function refresh(options = {}) {
  if (pending) {
    isDue = true;
    return pending;
  }
  pending = read(options)
    .catch(() => undefined)
    .finally(() => {
      setTimeout(() => {
        pending = null;
        if (isDue) {
          isDue = false;
          refresh();
        }
      }, GAP_MS);
    });
  return pending;
}

/** Goes to a page of the same kind in place. Where that fails, the browser goes there. */
export async function visit(address) {
  if (address) history.pushState(null, "", address);
  const wanted = location.href;
  const isTaken = await read({}).catch(() => false);
  if (!isTaken && wanted === location.href) location.reload();
}

/**
 * The address of this page, which names the rows and the question that it shows: those that its list does not have any more
 * come with it.
 */
function here() {
  const rows = [...document.querySelectorAll("[data-live=rows] tr.run[data-key]")].map((row) => row.dataset.key);
  const question = document.querySelector("[data-question]")?.dataset.question;
  const url = new URL(location.href);
  if (rows.length) url.searchParams.set("shown", rows.join(","));
  if (question) url.searchParams.set("at", question);
  return rows.length || question ? url.href : location.href;
}

/** True if the page is now that of its address. */
async function read({ takesNewRows = false }) {
  const address = location.href;
  const response = await fetch(here(), { headers: { accept: "text/html" }, cache: "no-store" });
  if (response.status === 401) {
    show("lost", "Log in again");
    return false;
  }
  const text = await response.text();
  if (!response.ok || address !== location.href) return false;
  const fresh = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
  document.title = fresh.title;
  for (const old of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(old.id);
    if (!next) continue;
    if (old.dataset.live === "rows" && !takesNewRows && old.querySelector("tbody") && (next.querySelector("tbody") || fresh.getElementById("beyond"))) rows(old, next, fresh.getElementById("beyond"));
    else morph(old, next);
  }
  document.dispatchEvent(new Event("etude:refreshed"));
  return true;
}

/** Changes rows in place. New ones wait behind a button, so that nothing moves under the pointer. */
function rows(old, next, beyond) {
  const known = new Map([...old.querySelectorAll("tr.run[data-key]")].map((row) => [row.dataset.key, row]));
  const gone = new Set(known.keys());
  let waiting = 0;
  for (const row of [next, beyond].flatMap((part) => [...(part?.querySelectorAll("tr.run[data-key]") ?? [])])) {
    const shown = known.get(row.dataset.key);
    gone.delete(row.dataset.key);
    if (!shown) waiting += 1;
    else if (shown.dataset.status !== row.dataset.status) {
      morph(shown, row);
      shown.classList.add("changed");
    } else morph(shown, row);
  }
  // Runs that were removed.
  for (const key of gone) known.get(key).classList.add("gone");
  let button = old.querySelector(".news");
  if (!waiting) return button?.remove();
  if (!button) {
    button = document.createElement("div");
    button.className = "news";
    button.append(document.createElement("button"));
    button.firstChild.className = "link";
    button.firstChild.type = "button";
    button.firstChild.addEventListener("click", () => {
      pending = null;
      refresh({ takesNewRows: true });
    });
    old.prepend(button);
  }
  button.firstChild.textContent = waiting === 1 ? "Show 1 new run" : `Show ${waiting} new runs`;
}

/** Makes `old` equal to `next`, and leaves alone what the reader has done: focus, open parts, typed text. */
function morph(old, next) {
  if (old.isEqualNode(next)) return;
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) return old.replaceWith(next.cloneNode(true));
  // A form never becomes one that does something else.
  if (old.nodeName === "FORM" && old.getAttribute("action") !== next.getAttribute("action")) return old.replaceWith(next.cloneNode(true));
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = next.data;
    return;
  }
  if (!(old instanceof Element) || old.matches("input, textarea, select")) return;
  // A row of the tree that the reader has closed.
  const isFolded = old.closest(".tree-row")?.dataset.closed === "true";
  if (isFolded && old.matches(".arrow")) return;
  const isOwn = (name) => (name === "open" && old.nodeName === "DETAILS") || (name === "hidden" && old.matches("[data-copy], .tree-row, [data-keys]")) || (name === "aria-expanded" && isFolded) || ["data-closed", "data-sent"].includes(name) || (name === "disabled" && old.matches("[data-sent] *"));
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && !isOwn(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value && !isOwn(name)) old.setAttribute(name, value);
  const keyed = new Map([...old.children].filter((child) => child.dataset?.key).map((child) => [child.dataset.key, child]));
  let place = old.firstChild;
  for (const child of [...next.childNodes]) {
    const key = child.dataset?.key;
    const match = key ? keyed.get(key) : place && !place.dataset?.key ? place : null;
    if (match) {
      if (match !== place) old.insertBefore(match, place);
      else place = place.nextSibling;
      morph(match, child);
    } else {
      const added = old.insertBefore(child.cloneNode(true), place);
      // Rows that are new below one that the reader has closed.
      if (added.matches?.(".tree-row") && isBelowClosed(added)) added.hidden = true;
    }
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

/** True if the reader has closed a row above this one: its rows are hidden. */
export function isBelowClosed(row) {
  const level = (of) => Number(of.getAttribute("aria-level"));
  let above = row.previousElementSibling;
  while (above && level(above) >= level(row)) above = above.previousElementSibling;
  return !!above && (above.hidden || above.dataset.closed === "true");
}

function show(state, text) {
  const sign = document.getElementById("connection");
  if (!sign || sign.dataset.state === state && sign.textContent === text) return;
  sign.dataset.state = state;
  sign.textContent = text;
}

const WORDS = { live: "Live", lost: "Reconnecting…" };

/** Follows the server's changes, through this tab's stream or that of another. */
export function follow() {
  if (!document.getElementById("connection")) return;
  const channel = new BroadcastChannel(`etude ${base}`);
  let state = "lost";
  let isLeader = false;
  const take = (message) => {
    if (message.state) {
      state = message.state;
      show(state, WORDS[state]);
    }
    if (message.news) {
      if (document.hidden) isDue = true;
      else refresh();
    }
  };
  const tell = (message) => {
    take(message);
    channel.postMessage(message);
  };
  channel.onmessage = ({ data }) => {
    if (data.hello) {
      if (isLeader) channel.postMessage({ state });
    } else take(data);
  };

  const lead = (signal) =>
    new Promise((done) => {
      isLeader = true;
      let source;
      let timer;
      const open = () => {
        source = new EventSource(`${base}/live`);
        source.onopen = () => tell({ state: "live" });
        source.addEventListener("news", () => tell({ news: true }));
        source.addEventListener("restart", () => tell({ state: "lost" }));
        source.onerror = () => {
          tell({ state: "lost" });
          if (source.readyState !== EventSource.CLOSED) return;
          // A refused stream is not opened again by the browser. The session may be over; `refresh` finds out.
          refresh();
          timer = setTimeout(open, 2_000);
        };
      };
      open();
      signal.addEventListener("abort", () => {
        isLeader = false;
        clearTimeout(timer);
        source.close();
        done();
      });
    });

  let stop = null;
  const begin = () => {
    if (stop) return;
    stop = new AbortController();
    const { signal } = stop;
    if (!navigator.locks) return void lead(signal);
    // Whoever has the lock has the stream; it goes to another tab when this one ends.
    navigator.locks.request(`etude ${base}`, { signal }, () => lead(signal)).catch(() => undefined);
    channel.postMessage({ hello: true });
  };
  let timer;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) {
      timer = setTimeout(() => {
        stop?.abort();
        stop = null;
      }, HIDDEN_MS);
      return;
    }
    begin();
    if (isDue) refresh();
  });
  show("lost", "Connecting…");
  if (!document.hidden) begin();
}
