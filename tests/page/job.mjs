// Jobs for the tests: a real one, and a master that says what a test wants.
import {spawn, spawnSync} from "node:child_process";
import {existsSync, mkdirSync, readFileSync, readdirSync, watch, writeFileSync} from "node:fs";
import {createServer} from "node:http";
import {homedir} from "node:os";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";
import {manyWorkers} from "./events.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

// A small model whose steps take 10 ms, until the job is stopped; for pictures
// MNIST, `epochs` times.
export class Job {
  constructor(bin, folder, epochs) {
    this.bin = bin;
    this.state = join(folder, "state");
    this.log = join(folder, "real.jsonl");
    this.file = join(folder, "real.html");
    this.lines = 0;
    mkdirSync(this.state, {recursive: true});
    writeFileSync(this.log, "");
    const flags = ["train", "--job_name=mnist", "--distribution_strategy=AllreduceStrategy", "--num_workers=3",
      "--num_threads=1", "--event_log=" + this.log, ...this.model(folder, epochs)];
    this.process = spawn(join(bin, "elasticdl"), flags, {cwd: root, env: this.environment(), stdio: ["ignore", "ignore", "pipe"]});
    this.said = "";
    this.process.stderr.on("data", data => { this.said += data; });
    this.exit = new Promise(done => this.process.once("exit", done));
  }
  environment() { return {...process.env, XDG_STATE_HOME: this.state}; }
  model(folder, epochs) {
    const mnist = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "elasticdl", "data", "mnist");
    if (epochs > 0 && existsSync(mnist)) {
      return ["--model_zoo=examples", "--model_def=mnist.mnist_functional_api.custom_model", "--training_data=" + join(mnist, "train"),
        "--validation_data=" + join(mnist, "test"), "--num_epochs=" + epochs, "--minibatch_size=32", "--evaluation_steps=400",
        "--checkpoint_steps=300", "--checkpoint_dir=" + join(folder, "checkpoints")];
    }
    const pace = join(folder, "pace"), data = join(folder, "data.csv");
    mkdirSync(pace);
    writeFileSync(join(pace, "walk"), "");
    writeFileSync(data, "id,x,y\n" + Array.from({length: 4096}, (_, i) => `${i},${i / 4096},${2 * i / 4096}`).join("\n") + "\n");
    return ["--model_zoo=tests/integration/zoo", "--model_def=linear.custom_model", "--model_params=pace=" + pace,
      "--training_data=" + data, "--validation_data=" + data, "--num_epochs=1000", "--minibatch_size=8", "--evaluation_steps=200"];
  }
  events() { return readFileSync(this.log, "utf8"); }
  // Waits until the event log has `count` lines that match.
  until(pattern, count = 1) {
    return new Promise((done, fail) => {
      const timer = setTimeout(() => end(fail, new Error(`never in the event log: ${count} of ${pattern}\n` + this.said)), 120000);
      const look = () => {
        if (this.events().split("\n").filter(line => pattern.test(line)).length >= count) end(done);
      };
      const watcher = watch(this.log, look);
      const end = (how, value) => { clearTimeout(timer); watcher.close(); how(value); };
      this.exit.then(() => end(fail, new Error("the job has ended\n" + this.said)));
      look();
    });
  }
  async url() {
    await this.until(/"job_start"/);
    const top = spawnSync(join(this.bin, "elasticdl"), ["top", "--url"], {env: this.environment(), encoding: "utf8"});
    if (top.status !== 0) throw new Error(top.stderr);
    this.token = top.stdout.trim().split("token=")[1];
    return top.stdout.trim();
  }
  async lives(workers, long) {
    await this.until(/"worker_ready"/, workers);
    await this.until(/"world".*"members":\[\d+,\d+,\d+\]/);
    if (long) await this.until(/"progress"/, 12);
  }
  // Sends a signal to a worker that runs.
  kill(signal, which = 0) {
    const pids = join(this.state, "elasticdl", "jobs", "mnist", "pids");
    const workers = readdirSync(pids).filter(name => name.includes("worker")).sort((a, b) =>
      a.localeCompare(b, undefined, {numeric: true}));
    process.kill(Number(readFileSync(join(pids, workers[which % workers.length]), "utf8")), signal);
  }
  // Waits for a moment without an evaluation: members that evaluate do not
  // train, and that time would be counted as a pause of the next world.
  async calm() {
    const count = pattern => this.events().split("\n").filter(line => pattern.test(line)).length;
    await this.until(/"evaluation"/, count(/"evaluation"/) + 1);
    await this.until(/"progress"/, count(/"progress"/) + 2);
  }
  // For pictures: leaves, kills and scalings over some seconds.
  async drama() {
    const later = seconds => this.until(/"progress"/,
      this.events().split("\n").filter(line => /"progress"/.test(line)).length + seconds);
    await later(6);
    await this.calm();
    this.kill("SIGTERM", 1);
    await later(8);
    await this.calm();
    this.kill("SIGKILL", 2);
    await later(1);
    this.kill("SIGKILL", 0);
    await later(8);
    spawnSync(join(this.bin, "elasticdl"), ["scale", "--num_workers=4"], {env: this.environment()});
    await later(6);
  }
  async end() { return (await this.exit) !== null; }
  report() {
    const made = spawnSync(join(this.bin, "elasticdl"), ["report", "--job_name=mnist", "--output=" + this.file],
      {env: this.environment(), encoding: "utf8"});
    if (made.status !== 0) throw new Error(made.stderr);
    return this.file;
  }
  async close() {
    if (this.process.exitCode === null && this.process.signalCode === null) this.process.kill("SIGTERM");
    await this.exit;
  }
}

// Serves the page's files and answers of its own; without streams, it refuses
// those as a master with too many viewers does; with "silent" ones it says
// nothing there, as behind a proxy that buffers.
export const fakeMaster = async (bin, folder, streams) => {
  const log = join(folder, "fake.jsonl");
  writeFileSync(log, manyWorkers("fake", 3, 60));
  const made = spawnSync(join(bin, "elasticdl"), ["report", "--event_log=" + log, "--output=-"], {encoding: "utf8", maxBuffer: 1 << 26});
  const part = (begin, end) => made.stdout.split(begin)[1].split(end)[0];
  const update = JSON.parse(part('<script type="application/json" id="data">', "</script>"));
  update.status.state = "running";
  update.status.target_servers = 2;
  const usage = {memory_bytes: 1e8, cpu_cores: 0.5, rows: 10, pulls_per_s: 30, pushes_per_s: 30};
  update.status.pods = [
    {name: "w0", id: 0, type: "worker", pid: 1, state: "Running", message: "", usage: {...usage, records_per_s: 1000, step_ms: 5}},
    {name: "s0", id: 0, type: "ps", pid: 2, state: "Running", message: "", usage: {...usage, model_bytes: 3e6}},
    {name: "s1", id: 1, type: "ps", pid: 3, state: "Running", message: "", usage: {...usage, model_bytes: 1e6, pulls_per_s: 90}}];
  const script = made.stdout.split("</script>\n<script>")[1].split("</script>")[0];
  const style = part("<style>", "</style>");
  const html = readFileSync(join(root, "src", "page", "web", "page.html"), "utf8");
  const commands = [], followers = new Set();
  const news = () => ({...update, all: false, cursor: update.cursor + 1, spans: [], worlds: [], points: [], checkpoints: [],
    evaluations: [], marks: [], events: [{time: update.now, event: "worker_ready", worker_id: 77}]});
  let told = false;
  const server = createServer((request, reply) => {
    const path = request.url.split("?")[0];
    const send = (type, text, code = 200) => reply.writeHead(code, {"Content-Type": type}).end(text);
    if (request.method === "POST") { commands.push(request.url); return send("application/json", '{"ok":true}'); }
    if (path === "/") return send("text/html", html);
    if (path === "/page.js") return send("text/javascript", script);
    if (path === "/page.css") return send("text/css", style);
    if (path === "/api/v1/update") {
      const again = {...news(), cursor: update.cursor, events: []};
      return send("application/json", JSON.stringify(/since=0/.test(request.url) ? update : told === "now" ? (told = true, news()) : again));
    }
    if (path !== "/api/v1/stream" || !streams) return send("application/json", '{"error":"no"}', 503);
    reply.writeHead(200, {"Content-Type": "text/event-stream"});
    if (streams === "silent") return reply.flushHeaders();
    reply.write("data: " + JSON.stringify(update) + "\n\n");
    followers.add(reply);
  });
  await new Promise(done => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${server.address().port}/?token=t`, commands,
    next(workers = update.status.target_workers) {
      update.status.target_workers = workers;
      told = "now";
      for (const reply of followers) reply.write("data: " + JSON.stringify(news()) + "\n\n");
    },
    close: () => new Promise(done => { server.close(done); server.closeAllConnections(); }),
  };
};
