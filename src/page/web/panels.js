// Records, pods, evaluations, checkpoints, events, configuration.
const panelHead = (title, ...more) => make("div", {class: "head"}, make("h2", {}, title), ...more);

// Rewrites a table only if its rows have changed, so that a selection of text
// and the place in a list stay.
const table = (parent, head, rows, none) => {
  const key = JSON.stringify([head, rows]);
  if (parent.dataset.key === key) return;
  parent.dataset.key = key;
  const number = cell => typeof cell === "number";
  if (!rows.length) return fill(parent, make("p", {class: "soft"}, none));
  const numbers = head.map((_, i) => rows.every(r => number(r[i]) || r[i] === "–"));
  const cells = (row, tag) => make("tr", {}, ...row.map((cell, i) => {
    const right = numbers[i] ? {class: "number"} : {};
    const content = number(cell) ? readable(cell) : cell.curve === undefined ? cell :
      make("span", {class: "curve", "aria-hidden": "true"}, cell.curve);
    return make(tag, tag === "th" ? {scope: "col", ...right} : right, content);
  }));
  fill(parent, make("table", {}, make("thead", {}, cells(head, "th")), make("tbody", {}, ...rows.map(r => cells(r, "td")))));
};
const readable = n => Number.isInteger(n) && Math.abs(n) < 1e15 ? n.toLocaleString("en-US") : brief(n);

const showLedger = () => {
  const s = store.status, panel = at("ledger");
  if (!panel.firstChild) {
    panel.append(panelHead("Records"), make("div", {class: "stack", role: "img"}), make("div", {class: "rows"}), make("div", {class: "epochs"}));
  }
  const total = s.records_total > 0 ? s.records_total : s.records_done + (s.records_in_flight || 0);
  const parts = [["in the model", s.records_done, "training"], ["with workers", s.records_in_flight || 0, "joined"],
    ["returned by workers, next in line", s.records_returned || 0, "returned"],
    ["set aside after failures", s.records_set_aside || 0, "lost"]];
  const known = parts.reduce((sum, part) => sum + part[1], 0);
  parts.push(["still to be handed out", Math.max(0, total - known), "rest"]);
  showStack(panel, parts, total, grouped);
  showEpochs(panel.children[3], s);
};
// A bar of [name, amount, color] parts, and the same as rows.
const showStack = (panel, parts, total, text) => {
  const stack = panel.children[1];
  while (stack.children.length < parts.length) stack.append(make("div"));
  parts.forEach(([, count, color], i) => {
    stack.children[i].className = "c-" + color;
    stack.children[i].style.width = (total > 0 ? count / total * 100 : 0).toFixed(3) + "%";
  });
  stack.setAttribute("aria-label", parts.map(([name, count]) => text(count) + " " + name).join(", "));
  const body = panel.children[2], key = JSON.stringify(parts);
  if (body.dataset.key === key) return;
  body.dataset.key = key;
  fill(body, make("table", {}, make("tbody", {}, ...parts.map(([name, count, color]) =>
    make("tr", {}, make("td", {}, make("span", {class: "dot c-" + color}), name), make("td", {class: "number"}, text(count)))))));
};

// Where the time of a step goes, and for whom the others wait.
const stepParts = [["wait for data", "data_wait"], ["wait for feed", "feed_wait"], ["forward", "forward"], ["backward", "backward"],
  ["communication that backward does not hide", "communication"], ["optimizer", "optimizer"], ["other", "other"]];
const showStepTime = () => {
  const s = store.status, t = s.step_time, panel = at("step-time");
  panel.hidden = !t;
  if (!t) return;
  if (!panel.firstChild) {
    panel.append(panelHead("Step time", make("span", {class: "small"})), make("div", {class: "stack", role: "img"}), make("div", {class: "rows"}), make("p", {class: "small"}));
  }
  const running = s.state === "running" || s.state === "stopping";
  setText(panel.firstChild.lastChild, milliseconds(t.step_ms) + (running ? " now, mean of all workers" : " on average"));
  showStack(panel, stepParts.map(([name, field]) => [name, t[field + "_ms"] || 0, field]), t.step_ms, milliseconds);
  const slow = s.slowest;
  setText(panel.lastChild, slow ? "Slowest: worker " + slow.worker + ", busy for " + milliseconds(slow.own_ms) +
    " of each step; the worker in the middle for " + milliseconds(slow.median_ms) + "." : "");
};
const bytes = n => !isNumber(n) ? "–" : n < 1e3 ? n + " B" : n < 1e6 ? Math.round(n / 1e3) + " kB" : n < 1e9 ? +(n / 1e6).toPrecision(3) + " MB" : +(n / 1e9).toPrecision(3) + " GB";
const showServers = () => {
  const servers = (store.status.pods || []).filter(p => p.type === "ps" && p.usage);
  at("servers").hidden = !servers.length;
  if (!servers.length) return;
  const sizes = servers.map(p => p.usage.model_bytes), mean = sizes.reduce((a, b) => a + b, 0) / sizes.length;
  const requests = servers.map(p => p.usage.pulls_per_s + p.usage.pushes_per_s);
  const panel = at("servers");
  if (!panel.firstChild) panel.append(panelHead("Parameter servers"), make("div", {class: "list"}), make("p", {class: "small"}));
  table(panel.children[1], ["server", "rows", "size", "pulls/s", "pushes/s", "share"],
    servers.map(p => [String(p.id), p.usage.rows, bytes(p.usage.model_bytes), Math.round(p.usage.pulls_per_s), Math.round(p.usage.pushes_per_s),
      mean > 0 ? (100 * p.usage.model_bytes / mean / sizes.length).toFixed(0) + " %" : "–"]), "none");
  setText(panel.children[2], "Skew: the largest server has " + skewOf(sizes) + " times the mean size; the busiest answers " +
    skewOf(requests) + " times the mean number of requests.");
};
// The largest of them, as a multiple of the mean.
const skewOf = amounts => {
  const sum = amounts.reduce((a, b) => a + b, 0);
  return sum > 0 ? (Math.max(...amounts) / sum * amounts.length).toFixed(2) : "1.00";
};
const showEpochs = (parent, s) => {
  if (!(s.num_epochs > 1 && s.num_epochs <= 100 && s.records_total > 0)) return fill(parent);
  const each = s.records_total / s.num_epochs;
  while (parent.children.length < s.num_epochs) parent.append(make("span", {}, make("i")));
  [...parent.children].forEach((span, i) => {
    const share = clamp(s.records_done / each - i, 0, 1);
    span.firstChild.style.width = (share * 100).toFixed(1) + "%";
    span.title = "epoch " + (i + 1) + ": " + Math.round(share * 100) + " %";
  });
};

const listPanel = (id, title) => {
  const panel = at(id);
  if (!panel.firstChild) panel.append(panelHead(title), make("div", {class: "list"}));
  return panel.lastChild;
};
// Records/s of each worker since the page was opened, at most the last minute.
// The master keeps nothing for it.
const rates = {
  most: 30, period: 2000, last: -Infinity, known: new Map(),
  add(pods) {
    const now = performance.now();
    if (now < this.last + this.period) return;
    this.last = now;
    const known = new Map();
    for (const pod of pods) {
      if (pod.type !== "worker") continue;
      const rate = pod.usage && isNumber(pod.usage.records_per_s) ? pod.usage.records_per_s : 0;
      known.set(pod.name, [...(this.known.get(pod.name) || []), rate].slice(-this.most));
    }
    this.known = known;
  },
  curve(name) {
    const values = this.known.get(name) || [], most = Math.max(...values, 0);
    return values.map(v => "▁▂▃▄▅▆▇█"[most > 0 ? Math.round(v / most * 7) : 0]).join("");
  },
};
const showTables = () => {
  const s = store.status;
  const last = [...store.lanes()].flatMap(row => row.spans).filter(span => span.end === null);
  const state = pod => {
    const span = last.find(one => one.member === pod.id && one.type === pod.type);
    return (pod.state || "") + (span && pod.state === "Running" ? ", " + span.state : "") + (pod.message ? ": " + pod.message : "");
  };
  at("pods").hidden = !s.pods || !s.pods.length;
  const use = (pod, field, show) => pod.usage && isNumber(pod.usage[field]) ? show(pod.usage[field]) : "–";
  rates.add(s.pods || []);
  table(listPanel("pods", "Pods"), ["pod", "state", "memory", "CPU", "records/s", "last minute", "step", "pid"],
    (s.pods || []).map(p => [p.name, state(p), use(p, "memory_bytes", bytes), use(p, "cpu_cores", n => n.toFixed(2)),
      use(p, "records_per_s", Math.round), {curve: rates.curve(p.name)}, use(p, "step_ms", milliseconds), p.pid ? String(p.pid) : "–"]), "none");
  const names = [...new Set(store.evaluations.flatMap(e => Object.keys(e.metrics)))];
  table(listPanel("evaluations", "Evaluations"), ["at", "step", ...names, "took"],
    [...store.evaluations].reverse().map(e => [duration(e.time - store.begin), e.step,
      ...names.map(name => e.metrics[name] ?? "–"), e.ms ? milliseconds(e.ms) : "–"]), "none yet");
  table(listPanel("checkpoints", "Checkpoints"), ["at", "version", "took", "folder"],
    [...store.checkpoints].reverse().map(c => [duration(c.time - store.begin), c.version,
      c.error ? "failed" : milliseconds(c.ms), c.error || c.path]), "none yet");
};

// Workers that were asked to go, or said that they would (as in history.cc).
const orderly = /^left|scaled away|announced|exit code 0|has ended/;
const isLoss = e => e.failure === true || (e.asked !== true && !orderly.test(e.reason || ""));
const eventGroups = {
  "all": () => true,
  "workers": e => /^(pod_|worker_|scaled|ps_|silent|heard)/.test(e.event),
  "worlds": e => /^(world|first_step|caught_up|state_)/.test(e.event),
  "data": e => /^(evaluation|checkpoint|task_)/.test(e.event),
  "trouble": e => (["worker_lost", "pod_ended"].includes(e.event) && isLoss(e)) ||
    ["task_quarantined", "state_given_up", "master_restarted", "silent"].includes(e.event) ||
    Boolean(e.error) || (e.event === "job_end" && e.state === "failed"),
};
const eventColor = e => ({world: "training", first_step: "training", caught_up: "training", checkpoint: e.error ? "lost" : "checkpoint",
  evaluation: "evaluation", worker_ready: "joined", pod_created: "starting", pod_started: "starting",
  scaled: "training", task_quarantined: "lost", silent: "silent", heard: "joined"})[e.event] || (eventGroups.trouble(e) ? "lost" : "left");
// A sentence for each kind that is known; the fields of others.
const eventTexts = {
  job_start: e => "job " + e.job + " begins (" + e.command + ", master's pid " + e.pid + ")",
  job_end: e => e.state + ": " + e.reason + " (step " + e.step + ", exit code " + e.exit_code + ")",
  master_restarted: e => "the master was killed (signal " + e.signal + ") and started again (" + plural(e.restarts, "time") + " so far)",
  pod_created: e => e.pod + ": " + e.reason + (e.replaces >= 0 && e.type === "worker" ? ", in place of worker " + e.replaces : ""),
  pod_started: e => e.pod + (e.pid ? " runs with pid " + e.pid : " runs"),
  pod_ended: e => e.pod + ": " + e.reason,
  worker_ready: e => "worker " + e.worker_id + " is ready",
  worker_lost: e => "worker " + e.worker_id + ": " + e.reason,
  world: e => "generation " + e.generation + ": " + (e.cause || "start") + ", paused for " + milliseconds(e.pause_ms) +
    (Array.isArray(e.members) ? "; workers " + e.members.join(", ") : "; " + e.members + " workers"),
  caught_up: e => "worker " + e.worker_id + " has the model and trains",
  state_given_up: e => "the state of step " + e.step + " in memory cannot be used: " + e.reason,
  first_step: e => "generation " + e.generation + " has committed step " + e.step,
  checkpoint: e => "version " + e.version + (e.error ? " failed: " + e.error : " saved in " + milliseconds(e.ms) + " to " + e.path),
  evaluation: e => "step " + e.step + ": " + Object.entries(e.metrics || {}).map(([name, value]) => name + " " + brief(value)).join(", ") +
    (e.ms ? " (" + readable(e.records) + " records in " + milliseconds(e.ms) + ")" : ""),
  scaled: e => "from " + e.from + " to " + plural(e.to, "worker"),
  ps_scaling: e => "from " + e.from + " to " + plural(e.to, "parameter server") + ": asked for",
  ps_takeover: e => "server " + e.server + " has taken over part " + e.part + " (term " + e.term + ")",
  ps_backup_current: e => "the backup of part " + e.part + " has all that server " + e.server + " has",
  ps_backup_lost: e => "server " + e.server + " continues without a backup of part " + e.part,
  ps_scaled: e => "the model is on " + plural(e.servers, "parameter server"),
  exported_rows: e => plural(e.rows, "row") + " of " + plural(e.tables, "table") + " exported to " + e.folder,
  silent: e => (e.type === "ps" ? "server " : "worker ") + e.id + " " + e.reason,
  heard: e => (e.type === "ps" ? "server " : "worker ") + e.id + " answers again",
  model: e => modelTotals(e),
  task_quarantined: e => "records " + e.begin + " to " + e.end + " of " + e.shard + " set aside: " + e.reason,
};
const eventFields = e => {
  const show = value => Array.isArray(value) ? value.join(" ") : value && typeof value === "object" ? JSON.stringify(value) : String(value);
  return Object.entries(e).filter(([key]) => key !== "time" && key !== "event")
    .map(([key, value]) => key.replace(/_/g, " ") + " " + show(value)).join(" · ");
};
// A line that was too long has lost the fields that its sentence needs.
const eventText = e => (Object.hasOwn(eventTexts, e.event) && !e.cut ? eventTexts[e.event] : eventFields)(e);
const events = {group: "all", text: "", most: 200};
const showEvents = () => {
  const panel = at("events");
  if (!panel.firstChild) {
    const search = make("input", {type: "search", placeholder: "Filter", "aria-label": "Filter events by text",
      oninput: () => { events.text = search.value.toLowerCase(); showEvents(); }});
    const chips = Object.keys(eventGroups).map(name => make("button", {type: "button", "aria-pressed": String(name === "all"), onclick: () => {
      events.group = name;
      chips.forEach(chip => chip.setAttribute("aria-pressed", String(chip.textContent === name)));
      showEvents();
    }}, name));
    panel.append(panelHead("Events", make("div", {class: "filters"}, ...chips, search)), make("div", {class: "list long"}),
      make("p", {class: "small"}));
  }
  const found = store.events.filter(e => eventGroups[events.group](e) &&
    (!events.text || (e.event + " " + eventText(e)).toLowerCase().includes(events.text)));
  const shown = found.slice(-events.most).reverse();
  const key = [events.group, events.text, found.length, store.cursor && shown[0] && shown[0].time].join("|");
  const body = panel.children[1];
  if (body.dataset.key !== key) {
    body.dataset.key = key;
    fill(body, make("table", {}, make("tbody", {}, ...shown.map(e => make("tr", {},
      make("td", {title: clock(e.time)}, tickText(e.time - store.begin, 0.1)),
      make("td", {}, make("span", {class: "dot c-" + eventColor(e)}), e.event.replace(/_/g, " ")),
      make("td", {}, eventText(e)))))));
  }
  setText(panel.children[2], shown.length + " of " + found.length + " shown, newest first; the job had " +
    plural(store.totals.events, "event") + ".");
};

// The end of a pod's log; only the master has it, not a report.
const log = {pod: "", busy: false, period: 2000, last: 0};
const showLog = () => {
  const panel = at("log");
  panel.hidden = Boolean(at("data")) || (!store.live && !log.pod);
  if (!store.live) return;
  if (!panel.firstChild) {
    const choice = make("select", {"aria-label": "Pod", onchange: () => {
      log.pod = choice.value;
      log.last = 0;
      readLog();
    }});
    panel.append(panelHead("Log", choice), make("pre", {tabindex: "0", hidden: true}));
  }
  const choice = panel.querySelector("select");
  const names = ["", "master", ...(store.status.pods || []).map(pod => pod.name)];
  if (log.pod && !names.includes(log.pod)) names.push(log.pod);
  if (choice.dataset.key !== names.join(" ")) {
    choice.dataset.key = names.join(" ");
    fill(choice, ...names.map(name => make("option", {value: name}, name || "Choose a pod")));
    choice.value = log.pod;
  }
  readLog();
};
const readLog = async () => {
  const code = at("log").querySelector("pre");
  code.hidden = !log.pod;
  if (!log.pod || log.busy || performance.now() < log.last + log.period) return;
  log.busy = true;
  log.last = performance.now();
  const pod = log.pod;
  try {
    const reply = await fetch("api/v1/log?pod=" + encodeURIComponent(pod), {headers});
    const text = reply.ok ? await reply.text() : (await reply.json()).error;
    const atEnd = code.scrollTop + code.clientHeight >= code.scrollHeight - 8;
    setText(code, text || "empty");
    if (atEnd || code.dataset.pod !== pod) code.scrollTop = code.scrollHeight;
    code.dataset.pod = pod;
  } catch { /* asked again with the next message */ }
  log.busy = false;
};

// What the client adds for its master is not of interest.
const inner = /^--(pod_backend|port|state_dir|display|http_port|token_file)=/;
const quoted = text => /^[\w@%+=:,./-]*$/.test(text) ? text : "'" + text.replace(/'/g, "'\\''") + "'";
const showConfiguration = () => {
  const panel = at("configuration");
  const flags = store.flags.filter(flag => !inner.test(flag));
  panel.hidden = !flags.length;
  const text = ["elasticdl " + (store.command || "train"), ...flags.map(quoted)].join(" \\\n  ");
  if (panel.dataset.key === text) return;
  panel.dataset.key = text;
  const copy = make("button", {type: "button", onclick: async () => {
    let done = "Copied";
    try { await navigator.clipboard.writeText(text); } catch { done = selectText(code) ? "Press Ctrl+C" : "Select it below"; }
    copy.textContent = done;
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  }}, "Copy");
  const code = make("pre", {tabindex: "0"}, text);
  fill(panel, panelHead("Configuration", make("div", {class: "tools"}, copy)), code);
};
// What the model consists of. Totals are exact, the list may be cut.
const modelTotals = model => [grouped(model.trained || 0) + " trained numbers",
  ...(model.frozen ? [grouped(model.frozen) + " frozen"] : []), ...(model.buffers ? [grouped(model.buffers) + " in buffers"] : []),
  bytes(model.bytes) + " in each worker", ...(model.optimizer ? [model.optimizer] : [])].join(" · ");
const shapeOf = tensor => (tensor.shape || []).map((size, i) => i === 0 && size === 0 && tensor.kind === "on servers" ? "any" : size).join(" × ") || "–";
const showModel = () => {
  const model = store.model, panel = at("model");
  panel.hidden = !model;
  if (!model) return;
  const list = model.tensors || [];
  if (!panel.firstChild) panel.append(panelHead("Model", make("span", {class: "small"})), make("div", {class: "list long"}), make("p", {class: "small"}));
  setText(panel.firstChild.lastChild, modelTotals(model));
  table(panel.children[1], ["parameter", "layer", "shape", "numbers", "size", "type", "kind"], list.map(t => [t.name || "", t.layer || "–",
    shapeOf(t), isNumber(t.count) ? t.count : "–", isNumber(t.bytes) ? bytes(t.bytes) : "–", t.dtype || "–", t.kind || ""]), "no parameters");
  setText(panel.children[2], model.num_tensors > list.length ? "The first " + list.length + " of " + grouped(model.num_tensors) + "." : "");
};
const selectText = element => {
  const selection = getSelection();
  if (!selection) return false;
  selection.selectAllChildren(element);
  return true;
};
