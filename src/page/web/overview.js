// Progress, numbers and curves.
const showHeader = () => {
  const s = store.status;
  document.title = s.job + " – ElasticDL";
  setText(at("job"), s.job);
  setState(s.state, s.state === "running" ? "" : s.reason);
  const share = s.records_total > 0 ? clamp(s.records_done / s.records_total, 0, 1) : 0;
  at("bar-done").style.width = (share * 100).toFixed(2) + "%";
  at("bar").setAttribute("aria-valuenow", Math.round(share * 100));
  const parts = [];
  if (s.records_total > 0) parts.push((share * 100).toFixed(share < 0.1 ? 1 : 0) + " %");
  if (s.num_epochs > 0) parts.push("epoch " + Math.min(s.epoch, s.num_epochs) + " of " + s.num_epochs);
  parts.push(grouped(s.records_done) + (s.records_total > 0 ? " of " + grouped(s.records_total) : "") + " records");
  parts.push(duration(store.end() - store.begin) + " since the start");
  const left = s.records_total - s.records_done;
  if (s.state === "running" && left > 0 && s.records_per_s > 0) parts.push(duration(left / s.records_per_s) + " to go");
  setText(at("progress"), parts.join(" · "));
  at("bar").setAttribute("aria-valuetext", parts.join(", "));
};
const setState = (state, note) => {
  setText(at("state"), state);
  at("state").className = "pill " + state.replace(/[^a-z]/g, "");
  setText(at("note"), note || "");
};

const showCards = () => {
  const s = store.status, t = store.totals;
  const elapsed = Math.max(1e-3, store.end() - store.begin);
  const perWorker = s.workers > 0 ? perSecond(s.records_per_s / s.workers) + " per worker" : "";
  const mean = trainedRate();
  const cards = [
    ["records/s", s.state === "running" || s.state === "stopping" ? perSecond(s.records_per_s || 0) : perSecond(mean),
      s.state === "running" ? perWorker : "mean of the job"],
    ["loss", brief(s.loss), isNumber(s.learning_rate) ? "learning rate " + brief(s.learning_rate) : ""],
    ["step", grouped(s.step), ""],
    ["workers", s.state === "running" ? s.workers + " / " + s.target_workers : String(s.target_workers),
      plural(t.joined, "join") + ", " + plural(t.left, "leave")],
    ["lost", String(t.lost), t.lost ? "and training went on" : "workers and servers"],
    ["paused in all", milliseconds(t.pause_ms), (t.pause_ms / 10 / elapsed).toFixed(2) + " % of the time, " +
      milliseconds(t.longest_pause_ms) + " at most"],
  ];
  const list = at("cards");
  while (list.children.length < cards.length) {
    list.append(make("div", {}, make("dt"), make("dd", {class: "value"}), make("dd", {class: "small"})));
  }
  cards.forEach((texts, i) => texts.forEach((text, k) => setText(list.children[i].children[k], text)));
};
const trainedRate = () => {
  const first = store.points[0], last = store.points[store.points.length - 1];
  return first && last[0] > first[0] ? store.status.records_done / (last[0] - first[0]) : 0;
};

const charts = {
  made: new Map(),
  smoothing: Number(remembered("smoothing", "0.6")),
  get(name, tools) {
    if (!this.made.has(name)) this.made.set(name, new Chart(at("charts"), name, tools));
    return this.made.get(name);
  },
  logLoss: remembered("log", "yes") === "yes",
  lossTools() {
    const slider = make("input", {type: "range", min: "0", max: "0.98", step: "0.02", value: String(this.smoothing),
      "aria-label": "Smoothing of the loss", title: "Smoothing", oninput: () => {
        this.smoothing = Number(slider.value);
        remember("smoothing", slider.value);
        charts.update();
        redraw();
      }});
    const log = make("button", {type: "button", "aria-pressed": String(this.logLoss), title: "Logarithmic axis", onclick: () => {
      this.logLoss = !this.logLoss;
      log.setAttribute("aria-pressed", String(this.logLoss));
      remember("log", this.logLoss ? "yes" : "no");
      charts.update();
      redraw();
    }}, "log");
    return make("div", {class: "tools"}, make("span", {class: "small"}, "smooth"), slider, log);
  },
  update() {
    const pick = i => store.points.map(p => [p[0], p[i], p[1]]);
    const loss = this.get("Loss", this.made.has("Loss") ? undefined : this.lossTools());
    loss.log = this.logLoss;
    const raw = pick(2);
    loss.series = [{name: "each", color: colors.training, points: raw, faint: true},
      {name: "loss", color: colors.training, points: smooth(raw, this.smoothing)}];
    const names = [...new Set(store.evaluations.flatMap(e => Object.keys(e.metrics)))].slice(0, 4);
    const tints = [colors.evaluation, colors.checkpoint, colors.joining, colors.serving];
    if (names.length) {
      this.get("Evaluation").series = names.map((name, i) => ({name, color: tints[i],
        points: store.evaluations.map(e => [e.time, e.metrics[name] ?? null, e.step])}));
      this.get("Evaluation").named = true;
      this.get("Evaluation").title = "Evaluation: " + names.join(", ");
    }
    const rate = this.get("Records per second");
    rate.fromZero = true;
    rate.series = [{name: "records/s", color: colors.joined, points: pick(4)}];
    if (store.points.some(p => isNumber(p[3]))) {
      this.get("Learning rate").series = [{name: "learning rate", color: colors.joining, points: pick(3)}];
    }
    for (const [name, chart] of this.made) if (chart.series.some(s => s.points.some(p => isNumber(p[1])))) chart.box.dataset.name = name;
  },
  draw() { for (const chart of this.made.values()) chart.draw(); },
};
