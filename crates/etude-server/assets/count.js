// Durations of runs at work count between two versions of the page.
const STEP_MS = 1_000;

/** The duration in the form of the server, in whole seconds. */
export function duration(ms) {
  const seconds = Math.floor(ms / 1_000);
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${two(Math.floor(seconds / 60) % 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${two(Math.floor(seconds / 3_600) % 24)} h`;
}

export function count() {
  // The value that the server has written, and when this page got it.
  const known = new WeakMap();
  const step = () => {
    for (const one of document.querySelectorAll("[data-active-ms]")) {
      const ms = one.dataset.activeMs;
      if (known.get(one)?.ms !== ms) known.set(one, { ms, at: performance.now() });
      const { at } = known.get(one);
      const now = performance.now();
      if (now - at >= STEP_MS) one.textContent = duration(Number(ms) + now - at);
    }
  };
  step();
  document.addEventListener("etude:refreshed", step);
  setInterval(step, STEP_MS);
}
