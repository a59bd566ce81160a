// The size of a graph. The drawing stays the document's; only its width and height change.
const STEPS = [0.25, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2];

let scale = 1;

/** Gives the graph its size again after the page has been refreshed. */
function apply() {
  const frame = document.getElementById("graph");
  const svg = frame?.querySelector("svg");
  const group = document.querySelector("[data-zoom]");
  if (!svg || !group) return;
  group.hidden = false;
  const { width, height } = svg.viewBox.baseVal;
  svg.setAttribute("width", Math.round(width * scale));
  svg.setAttribute("height", Math.round(height * scale));
  group.querySelector("output").value = `${Math.round(scale * 100)} %`;
}

/** The scale at which the whole graph is in its frame; never larger than it was drawn. */
function fit() {
  const frame = document.getElementById("graph");
  const { width, height } = frame.querySelector("svg").viewBox.baseVal;
  const style = getComputedStyle(frame);
  const room = (size, ...sides) => size - sides.reduce((sum, side) => sum + parseFloat(style[side]), 0);
  const across = room(frame.clientWidth, "paddingLeft", "paddingRight") / width;
  const down = room(parseFloat(style.maxHeight) || innerHeight * 0.7, "paddingTop", "paddingBottom") / height;
  return Math.min(1, across, down);
}

/** Offers the sizes of graphs. */
export function zoom() {
  apply();
  document.addEventListener("etude:refreshed", apply);
  document.addEventListener("click", (event) => {
    const wanted = event.target.closest("[data-zoom] button")?.value;
    if (!wanted) return;
    const next = { in: STEPS.find((step) => step > scale + 0.001), out: STEPS.findLast((step) => step < scale - 0.001), whole: 1, fit: fit() };
    scale = next[wanted] ?? scale;
    apply();
  });
}
