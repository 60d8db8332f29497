#include "status_page.h"

namespace elasticdl::master {
namespace {

// Data enters the page through textContent and numbers only, never as markup.
constexpr absl::string_view kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>ElasticDL</title>
<link rel="icon" href="data:,">
<style>
:root{color-scheme:light dark;--line:#2a7de1;--soft:#8886;--grid:#8883;
--running:#2a7de1;--succeeded:#1a8f4c;--failed:#c8342b;--other:#b26a00}
body{font:15px/1.45 system-ui,sans-serif;max-width:64rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.3rem;margin:0 0 .6rem;display:flex;gap:.7rem;flex-wrap:wrap;
align-items:center}
h2{font-size:1rem;margin:1.6rem 0 .4rem}
#state{font-size:.85rem;color:#fff;background:var(--other);padding:.1rem .6rem;
border-radius:1rem}
#state.running{background:var(--running)}
#state.succeeded{background:var(--succeeded)}
#state.failed{background:var(--failed)}
#note{margin:0 0 .6rem}#note:empty{display:none}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));
gap:.6rem;margin:1rem 0}
.card{border:1px solid var(--soft);border-radius:.5rem;padding:.5rem .8rem}
.card b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums}
.card span,small{font-size:.8rem;opacity:.7;font-weight:normal}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));
gap:0 1rem}
svg{width:100%;height:13rem;border:1px solid var(--soft);border-radius:.5rem;
box-sizing:border-box;display:block}
svg path{fill:none;stroke:var(--line);stroke-width:1.5}
svg line{stroke:var(--grid)}
svg text{font-size:11px;fill:currentColor;opacity:.7}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;
border-bottom:1px solid var(--soft)}
th{font-weight:600;opacity:.7}progress{width:100%}
</style></head><body>
<h1><span id="job">…</span><span id="state"></span></h1>
<p id="note"></p>
<progress id="bar" max="1" value="0"></progress>
<div class="cards" id="cards"></div>
<div class="charts" id="charts"></div>
<h2>Pods</h2><table id="pods"></table>
<h2>Evaluations</h2><table id="evaluations"></table>
<script>
"use strict";
const token = new URLSearchParams(location.search).get("token") || "";
const get = async path => {
  const reply = await fetch(path, {headers: {Authorization: "Bearer " + token}});
  if (!reply.ok) throw new Error("HTTP " + reply.status);
  return reply.json();
};
const at = id => document.getElementById(id);
const show = v => v === null || v === undefined ? "–" :
  typeof v === "number" && !Number.isInteger(v) ? String(+v.toPrecision(4)) :
  String(v);
const add = (parent, tag, text) => {
  const child = document.createElement(tag);
  if (text !== undefined) child.textContent = show(text);
  parent.appendChild(child);
  return child;
};
const table = (id, head, rows) => {
  const parent = at(id);
  parent.textContent = "";
  if (!rows.length) add(parent, "small", "none");
  if (!rows.length) return;
  const top = add(parent, "tr");
  head.forEach(text => add(top, "th", text));
  rows.forEach(row => {
    const line = add(parent, "tr");
    row.forEach(text => add(line, "td", text));
  });
};
const draw = (svg, tag, attributes, text) => {
  const child = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) child.setAttribute(name, attributes[name]);
  if (text !== undefined) child.textContent = text;
  svg.appendChild(child);
};
const seconds = s => s < 120 ? Math.round(s) + " s" :
  s < 7200 ? Math.round(s / 60) + " min" : show(s / 3600) + " h";
// Points are [x, y]; xText makes a label of an x.
const chart = (name, points, xText) => {
  const id = "chart " + name;
  if (!at(id)) {
    const box = add(at("charts"), "div");
    const head = add(box, "h2", name + " ");
    add(head, "small");
    box.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "svg"));
    box.id = id;
  }
  const svg = at(id).querySelector("svg");
  svg.textContent = "";
  const good = points.filter(p => p[1] !== null);
  if (good.length < 2) return;
  const ys = good.map(p => p[1]);
  let low = Math.min(...ys), high = Math.max(...ys);
  // A loss falls by orders of magnitude; on a linear scale the rest is flat.
  const log = name === "Loss" && low > 0 && high > 10 * low;
  at(id).querySelector("small").textContent = log ? "logarithmic" : "";
  if (name === "Records/s") low = 0;
  const f = log ? Math.log : y => y, back = log ? Math.exp : y => y;
  const first = good[0][0], span = good[good.length - 1][0] - first || 1;
  const width = svg.clientWidth, height = svg.clientHeight;
  const left = 52, right = width - 12, top = 12, bottom = height - 22;
  const x = v => left + (right - left) * (v - first) / span;
  const y = v => bottom - (bottom - top) * (f(v) - f(low)) /
    (f(high) - f(low) || 1);
  svg.setAttribute("viewBox", "0 0 " + width + " " + height);
  for (let i = 0; i < 4; ++i) {
    const value = back(f(low) + (f(high) - f(low)) * i / 3);
    draw(svg, "line", {x1: left, x2: right, y1: y(value), y2: y(value)});
    draw(svg, "text", {x: left - 6, y: y(value) + 4, "text-anchor": "end"},
         String(+value.toPrecision(3)));
    const where = first + span * i / 3;
    draw(svg, "text", {x: x(where), y: height - 6, "text-anchor":
         i === 0 ? "start" : i === 3 ? "end" : "middle"}, xText(where));
  }
  draw(svg, "path", {d: good.map((p, i) => (i ? "L" : "M") +
    x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1)).join("")});
};
const setState = (state, note) => {
  at("state").textContent = at("state").className = state;
  at("note").textContent = note;
};
let over = false;
const render = (s, history) => {
  over = !["running", "stopping"].includes(s.state);
  document.title = s.job + " – ElasticDL";
  at("job").textContent = s.job;
  setState(s.state, s.reason);
  at("bar").value = s.records_total ? s.records_done / s.records_total : 0;
  const cards = at("cards");
  cards.textContent = "";
  for (const [name, value] of [
      ["epoch", s.num_epochs > 0 ?
        Math.min(s.epoch, s.num_epochs) + " / " + s.num_epochs : s.epoch],
      ["step", s.step], ["records/s", Math.round(s.records_per_s)],
      ["loss", s.loss], ["workers", s.workers + " / " + s.target_workers],
      ["world generation", s.generation]]) {
    const card = add(cards, "div");
    card.className = "card";
    add(card, "b", value);
    add(card, "span", name);
  }
  chart("Loss", history.map(p => [p[0], p[2]]), seconds);
  chart("Records/s", history.map(p => [p[0], p[3]]), seconds);
  const metrics = [...new Set(s.evaluations.flatMap(e => Object.keys(e.metrics)))];
  if (s.evaluations.length > 1) {
    metrics.slice(0, 4).forEach(m => chart("Evaluation: " + m,
      s.evaluations.map(e => [e.step, e.metrics[m] ?? null]),
      step => "step " + Math.round(step)));
  }
  table("pods", ["name", "type", "pid", "state"],
        s.pods.map(p => [p.name, p.type, p.pid || "–",
                         p.message ? p.state + ": " + p.message : p.state]));
  table("evaluations", ["step", ...metrics], s.evaluations.slice().reverse()
    .map(e => [e.step, ...metrics.map(m => e.metrics[m])]));
};
const refresh = async () => {
  try {
    // The status last: the master waits until it was asked for once more
    // before it ends.
    const history = await get("api/history");
    const status = await get("api/status");
    render(status, history);
    window.onresize = () => render(status, history);
  } catch (error) {
    setState("no answer", "The master does not answer (" + error.message +
      "): the job has ended or was killed. What it said last:");
  }
  if (!over) setTimeout(refresh, 1000);
};
refresh();
</script></body></html>
)html";

}  // namespace

absl::string_view StatusPage() { return kPage; }

}  // namespace elasticdl::master
