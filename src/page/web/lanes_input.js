// Mouse, touch and keys on the lanes.
const lanesInput = () => {
  const canvas = lanes.canvas = at("lanes");
  const place = () => lanes.layout(canvas.clientWidth);
  const held = new Map();  // pointers that are down, by id
  let pinch = null;

  canvas.addEventListener("pointerdown", event => {
    held.set(event.pointerId, event.offsetX);
    if (event.pointerType !== "mouse" || event.button === 0) canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("moving");
    pinch = held.size === 2 ? spread(held) : null;
  });
  canvas.addEventListener("pointermove", event => {
    lanes.pointer = {x: event.offsetX, y: event.offsetY};
    const before = held.get(event.pointerId);
    if (before !== undefined) {
      held.set(event.pointerId, event.offsetX);
      const where = place();
      if (pinch && held.size === 2) {
        const now = spread(held);
        view.zoom(clamp(pinch.wide / Math.max(8, now.wide), 0.2, 5), where.time(now.middle));
        pinch = now;
      } else {
        view.move((before - event.offsetX) / (where.right - where.left));
      }
    }
    showTip();
    redraw();
  });
  const release = event => {
    held.delete(event.pointerId);
    pinch = null;
    if (held.size === 0) canvas.classList.remove("moving");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    lanes.pointer = null;
    showTip();
    redraw();
  });
  canvas.addEventListener("wheel", event => {
    const where = place();
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      view.zoom(Math.exp(clamp(event.deltaY, -80, 80) / 160), where.time(event.offsetX));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      view.move((event.deltaX || event.deltaY) / (where.right - where.left));
    }
  }, {passive: false});
  canvas.addEventListener("dblclick", event => view.zoom(0.4, place().time(event.offsetX)));
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = lanesKeys[event.key] || lanesKeys[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  });
  canvas.addEventListener("blur", () => { lanes.selected = null; redraw(); });
  at("zoom-in").onclick = () => view.zoom(0.6);
  at("zoom-out").onclick = () => view.zoom(1 / 0.6);
  at("zoom-all").onclick = () => view.all();
  at("zoom-last").onclick = () => view.last(60);
};
const spread = held => {
  const [a, b] = [...held.values()];
  return {wide: Math.abs(a - b), middle: (a + b) / 2};
};

const lanesKeys = {
  ArrowLeft: () => view.move(-0.2), ArrowRight: () => view.move(0.2),
  "+": () => view.zoom(0.6), "=": () => view.zoom(0.6),
  "-": () => view.zoom(1 / 0.6), "_": () => view.zoom(1 / 0.6),
  "0": () => view.all(), Home: () => view.all(), "9": () => view.last(60),
  ArrowUp: () => selectRow(-1), ArrowDown: () => selectRow(1),
  n: () => selectWorld(1), p: () => selectWorld(-1),
};
const say = text => setText(at("lanes-said"), text);
const selectRow = by => {
  const rows = store.lanes();
  if (!rows.length) return;
  lanes.selected = clamp((lanes.selected ?? (by > 0 ? -1 : rows.length)) + by, 0, rows.length - 1);
  const spans = rows[lanes.selected].spans;
  say("Row " + (lanes.selected + 1) + " of " + rows.length + ". " +
    describeSpan(spans[spans.length - 1], store.end()).join(", "));
  redraw();
};
// Brings the next world after the middle of the view into it.
const selectWorld = by => {
  const worlds = store.worldList(), middle = (view.from + view.to) / 2;
  const nearly = (view.to - view.from) * 1e-3;
  const next = by > 0 ? worlds.find(w => w.time > middle + nearly) :
    worlds.filter(w => w.time < middle - nearly).pop();
  if (!next) return;
  const [low, high] = view.limits();
  const span = Math.min(view.to - view.from, Math.max(1, (high - low) / 8));
  view.set(next.time - span / 2, next.time + span / 2);
  const place = lanes.layout(lanes.canvas.clientWidth);
  lanes.pointer = {x: place.x(next.time), y: lanes.top - 8};
  showTip();
  say(describeWorld(next).join(", "));
};

const showTip = () => {
  const tip = at("tip"), pointer = lanes.pointer;
  const place = lanes.layout(lanes.canvas.clientWidth);
  const lines = pointer && lanes.describe(place, pointer.x, pointer.y);
  tip.hidden = !lines;
  if (!lines) return;
  const [title, ...rest] = lines;
  fill(tip, make("b", {}, title), ...rest.map(line =>
    make(/^generation/.test(line) ? "b" : "p", {}, line)));
  const box = at("lanes-box");
  const x = pointer.x + 16 + tip.offsetWidth > box.clientWidth ? pointer.x - tip.offsetWidth - 16 : pointer.x + 16;
  tip.style.left = Math.max(0, x) + "px";
  tip.style.top = clamp(pointer.y + 14, 0, Math.max(0, place.height - tip.offsetHeight)) + "px";
};
