// Puts the parts together.
let asked = false;
const redraw = () => {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (!store.status) return;
    view.update();
    drawLanes();
    charts.draw();
  });
};
const refresh = () => {
  view.update();
  showHeader();
  showCards();
  showSteering();
  charts.update();
  showLedger();
  showStepTime();
  showServers();
  showTables();
  showEvents();
  showLog();
  showConfiguration();
  showModel();
  showLegend();
  lanes.canvas.setAttribute("aria-label", plural(store.lanes().length, "row") + " of workers and servers over " +
    duration(store.end() - store.begin) + ": " + plural(store.totals.worlds, "world") + ", " + store.totals.lost + " lost, " +
    store.totals.left + " left. " + statesNow() + "The same is in the list of events.");
  setText(at("lanes-title"), store.lanes().some(row => row.server) ? "Workers and servers over time" : "Workers over time");
  setText(at("footer"), "ElasticDL · started " + new Date(store.begin * 1000).toLocaleString() +
    (at("data") ? " · a report: it does not change any more" : "") +
    (store.resolution > 0 ? " · what was shorter than " + milliseconds(store.resolution * 1000) + " is put together" : ""));
  redraw();
};
// "Now: 3 training, 1 silent. ", for whoever does not see the picture.
const statesNow = () => {
  const counts = new Map();
  for (const row of store.lanes()) {
    const last = row.spans[row.spans.length - 1];
    if (last.end === null) counts.set(last.state, (counts.get(last.state) || 0) + 1);
  }
  return counts.size ? "Now: " + [...counts].map(([state, count]) => count + " " + state).join(", ") + ". " : "";
};
const showLegend = () => {
  const servers = store.lanes().some(row => row.server);
  const entries = [["starting", "starting"], ["joining", "joining"], ["training", "training"],
    servers && ["serving", "serving"], ["evaluating", "evaluating"], ["saving", "saving a checkpoint"],
    ["silent", "silent"], ["x", "lost"],
    ...(store.worlds.size ? [["bar c-lost", "world changed: loss"], ["bar c-joined", "join"], ["bar c-left", "leave"]] : [])].filter(Boolean);
  const list = at("legend");
  if (list.children.length === entries.length) return;
  fill(list, ...entries.map(([name, text]) => make("li", {},
    make("i", {class: name === "x" || name.startsWith("bar") ? name : "c-" + name, "aria-hidden": "true"}, name === "x" ? "✕" : ""), text)));
};

const setTheme = next => {
  theme = themes.includes(next) ? next : "auto";
  readColors();
  setText(at("theme"), {auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark"}[theme]);
  if (store.status) { charts.update(); redraw(); }
};

lanesInput();
setUpSteering();
setTheme(theme);
at("theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(theme) + 1) % themes.length];
  remember("theme", next);
  setTheme(next);
});
darkSystem.addEventListener("change", () => setTheme(theme));
new ResizeObserver(redraw).observe(at("lanes-box"));
addEventListener("resize", redraw);
// Lanes of those that are there grow between two messages.
setInterval(() => { if (store.live && !document.hidden) { showHeader(); redraw(); } }, 500);
if (at("data")) readReport(at("data")); else follow();
