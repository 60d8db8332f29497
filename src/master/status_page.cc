#include "status_page.h"

namespace elasticdl::master {
namespace {

// Data enters the page through textContent and numbers only, never as markup.
constexpr absl::string_view kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>ElasticDL</title>
<style>
:root{color-scheme:light dark;--line:#2a7de1;--soft:#8888}
body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1rem;margin:1.6rem 0 .4rem}
#state{color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));
gap:.6rem;margin:1rem 0}
.card{border:1px solid var(--soft);border-radius:.5rem;padding:.5rem .8rem}
.card b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums}
.card span{font-size:.8rem;opacity:.7}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));
gap:1rem}
svg{width:100%;height:12rem;border:1px solid var(--soft);border-radius:.5rem}
polyline{fill:none;stroke:var(--line);stroke-width:1.5;
vector-effect:non-scaling-stroke}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;
border-bottom:1px solid var(--soft)}
small{opacity:.7}progress{width:100%}
</style></head><body>
<h1><span id="job">…</span> <span id="state"></span></h1>
<progress id="bar" max="1" value="0"></progress>
<div class="cards" id="cards"></div>
<div class="charts">
<div><h2>Loss <small id="loss-range"></small></h2>
<svg id="loss" viewBox="0 0 100 100" preserveAspectRatio="none"></svg></div>
<div><h2>Records/s <small id="speed-range"></small></h2>
<svg id="speed" viewBox="0 0 100 100" preserveAspectRatio="none"></svg></div>
</div>
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
  typeof v === "number" && !Number.isInteger(v) ? v.toPrecision(4) : String(v);
const add = (parent, tag, text) => {
  const child = document.createElement(tag);
  if (text !== undefined) child.textContent = show(text);
  parent.appendChild(child);
  return child;
};
const table = (id, head, rows) => {
  const parent = at(id);
  parent.textContent = "";
  const top = add(parent, "tr");
  head.forEach(text => add(top, "th", text));
  rows.forEach(row => {
    const line = add(parent, "tr");
    row.forEach(text => add(line, "td", text));
  });
};
const chart = (id, points) => {
  const good = points.filter(p => p[1] !== null);
  const svg = at(id);
  svg.textContent = "";
  if (good.length < 2) return;
  const ys = good.map(p => p[1]);
  const low = Math.min(...ys), high = Math.max(...ys);
  const first = good[0][0], last = good[good.length - 1][0];
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", good.map(p =>
    (100 * (p[0] - first) / (last - first || 1)).toFixed(2) + "," +
    (96 - 92 * (p[1] - low) / (high - low || 1)).toFixed(2)).join(" "));
  svg.appendChild(line);
  at(id + "-range").textContent = show(low) + " … " + show(high);
};
const refresh = async () => {
  try {
    const [s, history] = await Promise.all([get("api/status"),
                                            get("api/history")]);
    document.title = s.job + " – ElasticDL";
    at("job").textContent = s.job;
    at("state").textContent = s.state + (s.reason ? ": " + s.reason : "");
    at("bar").value = s.records_total ? s.records_done / s.records_total : 0;
    const cards = at("cards");
    cards.textContent = "";
    for (const [name, value] of [
        ["epoch", s.num_epochs > 0 ? s.epoch + " / " + s.num_epochs : s.epoch],
        ["step", s.step], ["records/s", Math.round(s.records_per_s)],
        ["loss", s.loss], ["workers", s.workers + " / " + s.target_workers],
        ["generation", s.generation]]) {
      const card = add(cards, "div");
      card.className = "card";
      add(card, "b", value);
      add(card, "span", name);
    }
    chart("loss", history.map(p => [p[0], p[2]]));
    chart("speed", history.map(p => [p[0], p[3]]));
    table("pods", ["name", "type", "pid", "state"],
          s.pods.map(p => [p.name, p.type, p.pid || "–", p.state]));
    table("evaluations", ["step", "metrics"],
          s.evaluations.slice().reverse().map(e => [e.step,
            Object.entries(e.metrics).map(([k, v]) => k + " " + show(v))
              .join(", ")]));
  } catch (error) {
    at("state").textContent = "no answer from the master (" + error.message + ")";
  }
  setTimeout(refresh, 1000);
};
refresh();
</script></body></html>
)html";

}  // namespace

absl::string_view StatusPage() { return kPage; }

}  // namespace elasticdl::master
