// A browser for tests: Chromium over a pipe (DevTools protocol), without any
// packages.
import {spawn} from "node:child_process";
import {existsSync, mkdtempSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";

export const findChromium = () => [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome"].find(path => path && existsSync(path));

// Fails after `ms` unless `promise` has come.
const within = (promise, ms, what) => {
  let timer;
  const late = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error(what + ": nothing after " + ms + " ms")), ms); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

export class Browser {
  constructor(program) {
    this.folder = mkdtempSync(join(tmpdir(), "elasticdl-page-"));
    this.process = spawn(program, ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
      "--hide-scrollbars", "--force-color-profile=srgb", "--disable-background-networking", "--no-first-run",
      "--remote-debugging-pipe", "--user-data-dir=" + this.folder, "about:blank"],
      {stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"]});
    this.next = 1;
    this.waiting = new Map();
    this.listeners = [];
    let text = "";
    this.process.stdio[4].on("data", data => {
      text += data;
      for (let end = text.indexOf("\0"); end >= 0; end = text.indexOf("\0")) {
        this.receive(JSON.parse(text.slice(0, end)));
        text = text.slice(end + 1);
      }
    });
  }
  receive(message) {
    if (message.id) {
      const {done, fail} = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      return message.error ? fail(new Error(JSON.stringify(message.error))) : done(message.result);
    }
    for (const listener of this.listeners) listener(message);
  }
  send(method, params = {}, sessionId = undefined, ms = 60000) {
    const id = this.next++;
    const answer = new Promise((done, fail) => this.waiting.set(id, {done, fail}));
    this.process.stdio[3].write(JSON.stringify({id, method, params, sessionId}) + "\0");
    return within(answer, ms, method);
  }
  async open(options = {}) {
    const {targetId} = await this.send("Target.createTarget", {url: "about:blank"});
    const {sessionId} = await this.send("Target.attachToTarget", {targetId, flatten: true});
    const page = new Page(this, sessionId);
    await page.setUp(options);
    return page;
  }
  async close() {
    const gone = new Promise(done => this.process.once("exit", done));
    // Asked, it waits for its children; these still write to its folder.
    this.send("Browser.close").catch(() => {});
    await within(gone, 10000, "closing the browser").catch(() => this.process.kill("SIGKILL"));
    rmSync(this.folder, {recursive: true, force: true, maxRetries: 5});
  }
}

export class Page {
  constructor(browser, session) {
    this.browser = browser;
    this.session = session;
    this.errors = [];    // exceptions, console errors and refusals of the policy
    this.requests = [];  // addresses
    browser.listeners.push(message => {
      if (message.sessionId === session) this.note(message.method, message.params);
    });
  }
  note(method, params) {
    if (method === "Runtime.exceptionThrown") this.errors.push(params.exceptionDetails.exception?.description || params.exceptionDetails.text);
    if (method === "Log.entryAdded" && params.entry.level === "error") this.errors.push(params.entry.text + " " + (params.entry.url || ""));
    if (method === "Runtime.consoleAPICalled" && params.type === "error") this.errors.push(JSON.stringify(params.args));
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
    if (method === "Page.loadEventFired") this.loaded?.();
  }
  send(method, params, ms) { return this.browser.send(method, params, this.session, ms); }
  async setUp({width = 1280, height = 900, scale = 1, dark = false, touch = false, offline = false}) {
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await this.send(domain + ".enable");
    await this.send("Emulation.setDeviceMetricsOverride", {width, height, deviceScaleFactor: scale, mobile: touch});
    if (offline) await this.send("Network.emulateNetworkConditions", {offline, latency: 0, downloadThroughput: -1, uploadThroughput: -1});
    await this.send("Emulation.setEmulatedMedia", {features: [{name: "prefers-color-scheme", value: dark ? "dark" : "light"}]});
  }
  async go(url) {
    const loaded = new Promise(done => { this.loaded = done; });
    await this.send("Page.navigate", {url});
    await within(loaded, 60000, "loading " + url);
  }
  async run(code, ms = 60000) {
    const {result, exceptionDetails} = await this.send("Runtime.evaluate",
      {expression: "(async () => {" + code + "})()", awaitPromise: true, returnByValue: true}, ms);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
    return result.value;
  }
  // Waits until an expression is true.
  until(expression, ms = 60000) {
    return this.run(`
      const end = performance.now() + ${ms};
      for (;;) {
        if (${expression}) return true;
        if (performance.now() > end) throw new Error("never true: " + ${JSON.stringify(expression)});
        await new Promise(done => setTimeout(done, 50));
      }`, ms + 10000);
  }
  key(key) {
    const text = key.length === 1 ? key : undefined;
    return this.send("Input.dispatchKeyEvent", {type: "keyDown", key, text})
      .then(() => this.send("Input.dispatchKeyEvent", {type: "keyUp", key}));
  }
  mouse(type, x, y, more = {}) {
    return this.send("Input.dispatchMouseEvent", {type, x, y, button: type === "mouseMoved" || type === "mouseWheel" ? "none" : "left", clickCount: 1, ...more});
  }
  // Of an element, or of the page; at most `height` of it.
  async picture(clipTo = undefined, height = Infinity) {
    // Drawn, not only asked for.
    await this.run("await new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))");
    const clip = await this.run(`
      const box = ${clipTo ? `document.querySelector(${JSON.stringify(clipTo)})` : "document.documentElement"}.getBoundingClientRect();
      return {x: Math.max(0, box.x + scrollX), y: Math.max(0, box.y + scrollY), width: box.width, height: box.height, scale: 1};`);
    clip.height = Math.min(clip.height, height);
    const {data} = await this.send("Page.captureScreenshot", {format: "png", captureBeyondViewport: true, clip});
    return Buffer.from(data, "base64");
  }
}
