// The page in a real browser.
//   node page_test.mjs BIN_DIR [--pictures=DIR]
// Exit code 77: skipped, there is no browser. With --pictures it writes the
// pictures of the documentation: those of a real job that is killed about.
import assert from "node:assert/strict";
import {mkdirSync, mkdtempSync, rmSync, writeFileSync, readFileSync} from "node:fs";
import {spawnSync} from "node:child_process";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {Browser, findChromium} from "./browser.mjs";
import {activities, hostile, line, manyWorkers} from "./events.mjs";
import {Job, fakeMaster} from "./job.mjs";

const bin = process.argv[2];
const pictures = (process.argv[3] || "").replace(/^--pictures=/, "");
const program = findChromium();
if (!program) {
  console.log("skipped: no chromium on this machine (make deps-dev installs it)");
  process.exit(77);
}
const folder = mkdtempSync(join(tmpdir(), "elasticdl-page-test-"));
if (pictures) mkdirSync(pictures, {recursive: true});
const browser = new Browser(program);
const tests = [];
const test = (name, body) => tests.push({name, body});
const keep = async (page, name, clip, height) => {
  if (pictures) writeFileSync(join(pictures, name + ".png"), await page.picture(clip, height));
};

// A report made from lines of an event log.
const report = (name, lines) => {
  const log = join(folder, name + ".jsonl"), file = join(folder, name + ".html");
  writeFileSync(log, lines);
  const {status, stderr} = spawnSync(join(bin, "elasticdl"), ["report", "--event_log=" + log, "--output=" + file], {encoding: "utf8"});
  assert.equal(status, 0, stderr);
  return "file://" + file;
};
const ready = page => page.until("document.getElementById('lanes').dataset.rows !== undefined");
const viewOf = page => page.run("const d = document.getElementById('lanes').dataset; return [Number(d.from), Number(d.to)]");
const frame = page => page.run("await new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))");
const textOf = (page, id) => page.run(`return document.getElementById("${id}").innerText`);

test("a report shows all panels, without a request and without an error", async () => {
  const page = await browser.open();
  await page.go(report("many", manyWorkers("many", 12, 240)));
  await ready(page);
  assert.equal(await page.run("return document.getElementById('lanes').dataset.rows"), "12");
  for (const [id, text] of [["progress", "records"], ["cards", "paused in all"], ["ledger", "in the model"],
      ["step-time", "communication that backward does not hide"], ["step-time", "20 ms"],
      ["events", "worker"], ["configuration", "--num_workers=12"], ["footer", "a report"],
      ["model", "1,210 trained numbers"], ["model", "10 × 120"], ["model", "any × 8"], ["model", "The first 3 of 4"]]) {
    assert.match(await textOf(page, id), new RegExp(text), id);
  }
  const charts = await page.run("return [...document.querySelectorAll('.chart')].map(c => c.getAttribute('aria-label'))");
  assert.ok(charts.includes("Loss") && charts.includes("Records per second"), String(charts));
  assert.equal(await page.run("return document.getElementById('scale').hidden && document.getElementById('stop').hidden"), true);
  assert.deepEqual(page.requests.filter(url => !/^(file|data):/.test(url)), []);
  assert.deepEqual(page.errors, []);
});

// Colors in a canvas other than that of an empty one.
const drawn = (page, canvas) => page.run(`
  const c = document.querySelector(${JSON.stringify(canvas)}), data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  return new Set(new Uint32Array(data.buffer)).size - 1`);

test("a saved report renders without a network, and can load nothing", async () => {
  const page = await browser.open({offline: true});
  await page.go(report("offline", manyWorkers("offline", 5, 120)));
  await ready(page);
  await frame(page);
  assert.ok(await drawn(page, "#lanes") > 3, "the lanes are drawn");
  assert.ok(await drawn(page, ".chart canvas") > 2, "a curve is drawn");
  const shown = await page.run(`return ["lanes-panel", "charts", "ledger", "step-time", "events", "configuration", "model"]
    .filter(id => document.getElementById(id).getBoundingClientRect().height < 40)`);
  assert.deepEqual(shown, [], "panels without a content");
  assert.equal(await page.run("return document.getElementById('log').hidden"), true);
  assert.deepEqual(page.requests.filter(url => !/^(file|data):/.test(url)), []);
  assert.deepEqual(page.errors, []);
  // Its policy refuses what somebody might put into it.
  const refused = await page.run(`
    const tries = {
      fetch: fetch("data:text/plain,x").then(() => "loaded", () => "refused"),
      script: new Promise(done => {
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        done(window.ran ? "ran" : "refused");
      }),
      picture: new Promise(done => {
        const picture = new Image();
        picture.onload = () => done("loaded");
        picture.onerror = () => done("refused");
        picture.src = "http://127.0.0.1:9/x.png";
      }),
    };
    return Promise.all(Object.entries(tries).map(async ([name, how]) => name + " " + await how));`);
  assert.deepEqual(refused, ["fetch refused", "script refused", "picture refused"]);
});

test("zoom, move and keys change the view; hover says what is there", async () => {
  const page = await browser.open();
  await page.go(report("zoom", manyWorkers("zoom", 4, 300)));
  await ready(page);
  const [from, to] = await viewOf(page);
  const box = await page.run("const b = document.getElementById('lanes').getBoundingClientRect(); return {x: b.x, y: b.y, w: b.width, h: b.height}");
  const middle = [box.x + box.w / 2, box.y + 50];
  await page.mouse("mouseWheel", ...middle, {deltaX: 0, deltaY: -120, modifiers: 2});
  await page.until(`Number(document.getElementById('lanes').dataset.to) < ${to} - 1`);
  const zoomed = await viewOf(page);
  assert.ok(zoomed[0] > from && zoomed[1] < to);
  await page.mouse("mousePressed", ...middle);
  await page.mouse("mouseMoved", middle[0] + 100, middle[1], {buttons: 1, button: "left"});
  await page.mouse("mouseReleased", middle[0] + 100, middle[1]);
  await frame(page);
  const moved = await viewOf(page);
  assert.ok(moved[0] < zoomed[0], "dragging to the right shows what was before");
  await page.mouse("mouseMoved", middle[0], middle[1]);
  await page.until("!document.getElementById('tip').hidden");
  assert.match(await textOf(page, "tip"), /worker \d+: training/);
  await page.run("document.getElementById('lanes').focus()");
  await page.key("+");
  await frame(page);
  const nearer = await viewOf(page);
  assert.ok(nearer[1] - nearer[0] < moved[1] - moved[0]);
  await page.key("n");
  await page.until("/generation \\d+/.test(document.getElementById('lanes-said').textContent)");
  await page.key("ArrowDown");
  await page.until("/^Row 1 of 4/.test(document.getElementById('lanes-said').textContent)");
  await page.key("0");
  await frame(page);
  assert.deepEqual(await viewOf(page), [from, to]);
  assert.deepEqual(page.errors, []);
});

// The color of the lanes at a time, in a row, below the name; as #rrggbb.
const colorAt = (page, row, time) => page.run(`
  const c = document.getElementById("lanes"), d = c.dataset, ratio = c.width / c.clientWidth;
  const left = 92, right = c.clientWidth - 8;
  const x = left + (${time} - d.from) / (d.to - d.from) * (right - left), y = 26 + ${row} * 32 + 24;
  const [r, g, b] = c.getContext("2d").getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data;
  return {x, y, color: "#" + [r, g, b].map(v => v.toString(16).padStart(2, "0")).join("")}`);
const variable = (page, name) => page.run(`return getComputedStyle(document.documentElement).getPropertyValue("--${name}").trim()`);
// How much two colors differ, as WCAG defines it: 1 to 21.
const contrast = (a, b) => {
  const light = color => [1, 3, 5].map(i => parseInt(color.slice(i, i + 2), 16) / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const [high, low] = [light(a), light(b)].sort((p, q) => q - p);
  return (high + 0.05) / (low + 0.05);
};

test("lanes show who evaluates, who saves and who is silent, in light and dark", async () => {
  const url = report("activities", activities());
  for (const dark of [false, true]) {
    const page = await browser.open({dark});
    await page.go(url);
    await ready(page);
    await frame(page);
    for (const [row, time, state] of [[0, 10, "training"], [0, 30, "evaluating"], [1, 30, "evaluating"], [0, 45, "training"],
        [0, 55, "saving"], [1, 55, "training"], [1, 80, "training"]]) {
      assert.equal((await colorAt(page, row, time)).color, await variable(page, state), `row ${row} at ${time} s: ${state}`);
    }
    // Silent lanes are hatched: their color is there, and another.
    const silent = new Set();
    for (let time = 80; time < 82; time += 0.1) silent.add((await colorAt(page, 2, time)).color);
    assert.ok(silent.has(await variable(page, "silent")) && silent.size > 1, [...silent].join(" "));
    for (const state of ["evaluating", "saving", "silent", "training", "joining", "lost"]) {
      const [color, panel] = [await variable(page, state), await variable(page, "panel")];
      assert.ok(contrast(color, panel) >= 3, `${state} ${color} on ${panel}: ${contrast(color, panel)}`);
    }
    const tip = async (row, time) => {
      const {x, y} = await colorAt(page, row, time);
      const box = await page.run("const b = document.getElementById('lanes').getBoundingClientRect(); return {x: b.x, y: b.y}");
      await page.mouse("mouseMoved", box.x + x, box.y + y);
      await frame(page);
      return textOf(page, "tip");
    };
    assert.match(await tip(1, 30), /worker 1: evaluating/);
    assert.match(await tip(1, 30), /in generation 1 of 3 workers/);
    assert.match(await tip(0, 55), /worker 0: saving a checkpoint/);
    assert.match(await tip(2, 90), /worker 2: silent[^]*has not answered for 5s/);
    for (const text of ["evaluating", "saving a checkpoint", "silent"]) assert.match(await textOf(page, "legend"), new RegExp(text));
    // For those who do not see it.
    assert.match(await page.run("return document.getElementById('lanes').getAttribute('aria-label')"), /Now: 2 training, 1 silent\./);
    await page.run("document.getElementById('lanes').focus()");
    await page.key("ArrowUp");
    await page.until("/^Row 3 of 3. worker 2: silent/.test(document.getElementById('lanes-said').textContent)");
    await page.run("[...document.querySelectorAll('#events button')].find(b => b.textContent === 'trouble').click()");
    assert.match(await textOf(page, "events"), /worker 2 has not answered for 5s/);
    assert.deepEqual(page.errors, []);
  }
});

test("many short evaluations do not look like a long one", async () => {
  const lines = activities().split("\n").slice(0, 8);
  for (let time = 10; time < 9000; time += 3) {
    lines.push(line(time, "evaluating", {step: 1, workers: [0]}), line(time + 0.01, "evaluating", {step: 1, workers: []}));
  }
  lines.push(line(9000, "scaled", {from: 3, to: 3}));
  const page = await browser.open();
  await page.go(report("short", lines.join("\n") + "\n"));
  await ready(page);
  await frame(page);
  const training = await variable(page, "training");
  const near = color => [1, 3, 5].every(i => Math.abs(parseInt(color.slice(i, i + 2), 16) - parseInt(training.slice(i, i + 2), 16)) < 24);
  for (let time = 1000; time < 8000; time += 500) assert.ok(near((await colorAt(page, 0, time)).color), String(time));
});

test("an evaluation says which metric it is", async () => {
  const page = await browser.open();
  const lines = manyWorkers("metric", 2, 60) + line(60, "evaluation", {step: 100, metrics: {accuracy: 0.975}, records: 10, ms: 5}) + "\n";
  await page.go(report("metric", lines));
  await ready(page);
  await frame(page);
  assert.equal(await page.run("return document.querySelector('.chart[aria-label=Evaluation] .now').innerText"), "accuracy 0.975");
});

test("events are filtered", async () => {
  const page = await browser.open();
  await page.go(report("filter", manyWorkers("filter", 4, 120)));
  await ready(page);
  const names = () => page.run("return [...new Set([...document.querySelectorAll('#events tbody td:nth-child(2)')].map(c => c.innerText.trim()))]");
  assert.ok((await names()).includes("world"));
  await page.run("[...document.querySelectorAll('#events button')].find(b => b.textContent === 'trouble').click()");
  assert.deepEqual(await names(), ["worker lost"]);
  await page.run("const f = document.querySelector('#events input'); f.value = 'no such thing'; f.dispatchEvent(new Event('input'))");
  assert.deepEqual(await names(), []);
});

test("curves of values that differ by rounding, or of tiny ones, are drawn", async () => {
  const next = x => { const b = new Float64Array([x]); new BigUint64Array(b.buffer)[0] += 1n; return b[0]; };
  for (const [low, high] of [[0.3, next(0.3)], [1e15, next(1e15)], [0, 5e-324], [-1e-300, 1e-300]]) {
    const lines = [line(0, "job_start", {job: "flat", command: "train", pid: 1}),
      ...[low, high, low].map((loss, i) => line(i + 1, "progress", {step: i, epoch: 1, num_epochs: 1, records_done: i,
        records_total: 9, records_per_s: low + i * (high - low), workers: 1, target_workers: 1, loss, learning_rate: high}))];
    const page = await browser.open();
    await page.go(report("flat", lines.join("\n") + "\n"));
    await page.until("/^Loss: \\S/.test(document.querySelector('.chart canvas').getAttribute('aria-label'))");
    assert.deepEqual(page.errors, []);
  }
});

test("a report is made from a log with bad lines", async () => {
  const page = await browser.open();
  const lines = manyWorkers("bad", 3, 60).split("\n");
  lines.splice(5, 0, '{"time":18000', "x");
  await page.go(report("bad", lines.join("\n")));
  await ready(page);
  assert.equal(await page.run("return document.getElementById('lanes').dataset.rows"), "3");
});

test("names that want to be markup stay text", async () => {
  const page = await browser.open({offline: true});
  await page.go(report("hostile", hostile()));
  await ready(page);
  await frame(page);
  const canvas = await page.run("const b = document.getElementById('lanes').getBoundingClientRect(); return {x: b.x, y: b.y, w: b.width}");
  for (let x = 100; x < canvas.w; x += 40) {
    await page.mouse("mouseMoved", canvas.x + x, canvas.y + 40);
    await page.mouse("mouseMoved", canvas.x + x, canvas.y + 75);
  }
  assert.equal(await page.run("return window.hit === undefined"), true);
  assert.equal(await page.run("return document.querySelectorAll('img').length"), 0);
  assert.equal(await page.run("return document.scripts.length"), 2);
  assert.match(await textOf(page, "job"), /<img src=x/);
  assert.match(await textOf(page, "configuration"), /<script>/);
  assert.match(await textOf(page, "model"), /<img src=x/);
  assert.deepEqual(page.requests.filter(url => !/^(file|data):/.test(url)), []);
  assert.deepEqual(page.errors, []);
});

test("two hundred workers are readable, on a phone and in the dark", async () => {
  const url = report("big", manyWorkers("big", 200, 1800));
  const page = await browser.open({dark: true});
  await page.go(url);
  await ready(page);
  assert.equal(await page.run("return document.getElementById('lanes').dataset.rows"), "200");
  assert.equal(await page.run("return document.documentElement.dataset.theme"), "dark");
  assert.ok(await page.run("return document.getElementById('lanes').clientHeight < 1200"));
  await keep(page, "page-200-workers", "#lanes-panel");
  const phone = await browser.open({width: 390, height: 844, touch: true, scale: 2});
  await phone.go(url);
  await ready(phone);
  assert.equal(await phone.run("return document.documentElement.scrollWidth"), 390);
  assert.deepEqual([...page.errors, ...phone.errors], []);
});

test("a page follows the stream, and asks where there is none", async () => {
  for (const streams of [true, false]) {
    const master = await fakeMaster(bin, folder, streams);
    try {
      const page = await browser.open();
      await page.go(master.url);
      await ready(page);
      assert.equal(await page.run("return document.documentElement.dataset.source"), streams ? "stream" : "asking");
      master.next();
      await page.until("document.getElementById('events').innerText.includes('worker 77 is ready')");
      await page.run("document.getElementById('scale-to').value = '5'; document.querySelector('#scale button').click()");
      await page.until("document.getElementById('answer').textContent.includes('5 workers asked for')");
      assert.deepEqual(master.commands, ["/api/v1/scale?num_workers=5"]);
      // Servers have a field of their own, and their skew is text.
      assert.equal(await page.run("return document.getElementById('scale-servers-to').value"), "2");
      await page.run("document.getElementById('scale-servers-to').value = '3'; document.querySelector('#scale-servers button').click()");
      await page.until("document.getElementById('answer').textContent.includes('3 servers asked for')");
      assert.deepEqual(master.commands.slice(1), ["/api/v1/scale?num_ps_pods=3"]);
      assert.match(await textOf(page, "servers"), /largest server has 1\.50 times the mean size; the busiest answers 1\.33 times/);
      assert.match(await textOf(page, "pods"), /last minute/);
      assert.match(await page.run("return document.querySelector('#pods .curve').textContent"), /^█+$/);
      // The field follows what others ask for, but never what somebody types.
      const field = "document.getElementById('scale-to').value";
      master.next(5);
      await page.until("document.querySelectorAll('#cards .value')[3].innerText.endsWith('/ 5')");
      master.next(4);
      await page.until(field + " === '4'");
      await page.run(field + " = '7'");
      master.next(6);
      await page.until("document.querySelectorAll('#cards .value')[3].innerText.endsWith('/ 6')");
      assert.equal(await page.run("return " + field), "7");
      assert.deepEqual(page.errors.filter(text => !/503/.test(text)), []);
    } finally {
      await master.close();
    }
  }
});

test("a page asks when the stream is held back", async () => {
  const master = await fakeMaster(bin, folder, "silent");
  try {
    const page = await browser.open();
    await page.go(master.url);
    await ready(page);
    assert.equal(await page.run("return document.documentElement.dataset.source"), "asking");
    assert.deepEqual(page.errors, []);
  } finally {
    await master.close();
  }
});

test("a real job, live: joins, kills, scaling from the page, its end, its report", async () => {
  // For pictures: so many epochs that the job outlasts what happens to it, which
  // depends on the machine.
  const epochs = Number(process.env.PICTURES_EPOCHS || 7);
  const job = new Job(bin, folder, pictures ? epochs : 0);
  try {
    const page = await browser.open({scale: pictures ? 1.5 : 1});
    await page.go(await job.url());
    await ready(page);
    await page.until("/\\d/.test(document.querySelector('#cards .value').innerText)");
    await job.lives(3, pictures);
    const lost = () => page.until("Number(document.querySelectorAll('#cards .value')[4].innerText) > 0");
    if (pictures) await job.calm();
    job.kill("SIGKILL");
    await lost();
    await page.until("/Linear/.test(document.getElementById('model').innerText)");
    await page.run("const c = document.querySelector('#log select'); c.value = 'master'; c.dispatchEvent(new Event('change'))");
    await page.until("/generation \\d+/.test(document.querySelector('#log pre').innerText)");
    if (pictures) await job.calm();
    await page.run("document.getElementById('scale-to').value = '5'; document.querySelector('#scale button').click()");
    await page.until("document.getElementById('answer').textContent.includes('asked for')");
    await page.until("document.getElementById('lanes').dataset.rows === '5'");
    if (pictures) await job.drama();
    await keep(page, "page", undefined, 1460);
    if (!pictures) {
      await page.run("document.getElementById('stop').click()");
      await page.run("document.getElementById('stop').click()");
    }
    await page.until("['succeeded', 'stopped'].includes(document.getElementById('state').innerText)", 300000);
    assert.equal(await job.end(), true);
    assert.deepEqual(page.errors, []);
    const file = job.report();
    const token = job.token;
    for (const text of [readFileSync(file, "utf8"), job.events()]) assert.ok(!text.includes(token), "the token is in it");
    const saved = await browser.open({scale: pictures ? 2 : 1, offline: true});
    await saved.go("file://" + file);
    await ready(saved);
    assert.match(await textOf(saved, "state"), /succeeded|stopped/);
    assert.match(await textOf(saved, "configuration"), /--num_workers=3/);
    assert.match(await textOf(saved, "model"), /trained numbers/);
    assert.ok(Number(await saved.run("return document.getElementById('lanes').dataset.rows")) >= 5);
    await keep(saved, "lanes", "#lanes-panel");
    assert.deepEqual(saved.requests.filter(url => !/^(file|data):/.test(url)), []);
    assert.deepEqual(saved.errors, []);
    if (pictures) {
      const dark = await browser.open({scale: 2, dark: true});
      await dark.go("file://" + file);
      await ready(dark);
      await keep(dark, "page-dark", "#lanes-panel");
      const phone = await browser.open({width: 390, height: 844, touch: true, scale: 2});
      await phone.go("file://" + file);
      await ready(phone);
      await keep(phone, "page-phone", undefined, 1700);
    }
  } finally {
    await job.close();
  }
});

let failed = 0;
for (const {name, body} of tests) {
  const begin = Date.now();
  try {
    await body();
    console.log("ok     " + name + " (" + (Date.now() - begin) + " ms)");
  } catch (error) {
    ++failed;
    console.log("FAILED " + name + "\n" + error.stack);
  }
}
await browser.close();
rmSync(folder, {recursive: true, force: true, maxRetries: 5});
process.exit(failed ? 1 : 0);
