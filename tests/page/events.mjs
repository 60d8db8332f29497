// Event logs for the tests: made up, but of the same form as real ones.
const begin = 1800000000;

export const line = (time, event, fields = {}) => JSON.stringify({time: begin + time, event, ...fields});
const pod = (job, id) => ({pod: `elasticdl-worker-${job}-${id}`, type: "worker", id});

// A job with many workers, some of which are killed and replaced.
export const manyWorkers = (job, count, seconds) => {
  const lines = [line(0, "job_start", {job, command: "train", pid: 1, flags: ["--num_workers=" + count]})];
  let seed = 7, generation = 0, next = count;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const there = [];
  for (let id = 0; id < count; ++id) {
    lines.push(line(0.1, "pod_created", {...pod(job, id), reason: "wanted"}));
    there.push(id);
  }
  const ready = there.map(id => [2 + random() * 6, id]).sort((a, b) => a[0] - b[0]);
  lines.push(line(2, "model", {trained: 1210, frozen: 0, buffers: 20, bytes: 4920, num_tensors: 4, optimizer: "SGD(learning_rate=0.1)",
    tensors: [{name: "fc.weight", layer: "Linear", shape: [10, 120], kind: "trained", dtype: "float32", bytes: 4800, count: 1200},
      {name: "fc.bias", layer: "Linear", shape: [10], kind: "trained", dtype: "float32", bytes: 40, count: 10},
      {name: "wide.embeddings", layer: "Embedding", shape: [0, 8], kind: "on servers"}]}));
  const members = [];
  for (const [time, id] of ready) {
    lines.push(line(time, "worker_ready", {worker_id: id}));
    members.push(id);
  }
  lines.push(line(8.2, "world", {generation: ++generation, members: [...members], cause: "start", pause_ms: 0}));
  for (let time = 12; time < seconds; time += 6 + random() * 10) {
    const victim = members.splice(Math.floor(random() * members.length), 1)[0];
    const reason = "signal 9 (SIGKILL)";
    lines.push(line(time, "world", {generation: ++generation, members: [...members],
      cause: `worker ${victim} lost: its process died`, pause_ms: 20 + random() * 30}));
    lines.push(line(time, "worker_lost", {worker_id: victim, reason}));
    lines.push(line(time, "pod_created", {...pod(job, next), replaces: victim, reason}));
    lines.push(line(time + 2, "worker_ready", {worker_id: next}));
    members.push(next);
    lines.push(line(time + 2.3, "world", {generation: ++generation, members: [...members],
      cause: `worker ${next} joined`, pause_ms: 2 + random() * 5}));
    ++next;
    lines.push(line(time + 2.4, "progress", {step: Math.round(time * 40), epoch: 1, num_epochs: 2, records_done: Math.round(time * 9000),
      records_total: seconds * 20000, records_per_s: 9000 + random() * 800, workers: members.length,
      target_workers: count, loss: 2 / Math.sqrt(time) + random() * 0.1, learning_rate: 0.1,
      step_time: {step_ms: 20, data_wait_ms: 1, feed_wait_ms: 0, forward_ms: 6, backward_ms: 9, communication_ms: 3, optimizer_ms: 0.5, other_ms: 0.5}}));
  }
  return lines.join("\n") + "\n";
};

// Three workers that train for 100 s: all evaluate from 20 to 40, worker 0 saves
// from 50 to 60, and worker 2 is silent from 70 on.
export const activities = () => [
  line(0, "job_start", {job: "activities", command: "train", pid: 1, flags: ["--num_workers=3"]}),
  ...[0, 1, 2].flatMap(id => [line(0.1, "pod_created", {...pod("activities", id), reason: "wanted"})]),
  ...[0, 1, 2].map(id => line(2, "worker_ready", {worker_id: id})),
  line(3, "world", {generation: 1, members: [0, 1, 2], cause: "start", pause_ms: 0}),
  line(20, "evaluating", {step: 5, workers: [0]}),
  line(20.1, "evaluating", {step: 5, workers: [0, 1, 2]}),
  line(40, "evaluation", {step: 5, metrics: {accuracy: 0.5}, records: 10, ms: 20000}),
  line(40, "evaluating", {step: 5, workers: []}),
  line(50, "saving", {workers: [0]}),
  line(60, "checkpoint", {version: 7, path: "/c/version-7", ms: 10000}),
  line(60, "saving", {workers: []}),
  line(70, "silent", {type: "worker", id: 2, reason: "has not answered for 5s"}),
  line(100, "progress", {step: 9, epoch: 1, num_epochs: 1, records_done: 5, records_total: 10, records_per_s: 1, workers: 3,
    target_workers: 3, loss: 1, learning_rate: 0.1}),
].join("\n") + "\n";

// Every text that a user or a model can choose tries to become markup.
export const hostile = () => {
  const bad = `<img src=x onerror="window.hit=1"></script><script>window.hit=1</script>'"&amp;`;
  return [
    line(0, "job_start", {job: bad, command: bad, pid: 1, flags: ["--model_def=" + bad]}),
    line(1, "pod_started", {pod: bad, type: "worker", id: 0, pid: 2}),
    line(2, "worker_ready", {worker_id: 0}),
    line(2.1, "model", {trained: bad, bytes: -1, optimizer: bad, num_tensors: 2, tensors: [{name: bad, layer: bad, dtype: bad, kind: bad,
      shape: [bad, 5, -1]}, bad, 5, {}]}),
    line(3, "world", {generation: 1, members: [0], cause: bad, pause_ms: 1}),
    line(4, "progress", {step: 1, epoch: 1, num_epochs: 1, records_done: 5, records_total: 10, records_per_s: 1, loss: 1}),
    line(5, "evaluation", {step: 1, metrics: {[bad]: 0.5, constructor: 1, ["__proto__"]: 2}, ms: 3, records: 1}),
    line(5.5, "evaluation", {step: 2, metrics: {[bad]: 0.6}, ms: 3, records: 1}),
    line(6, "checkpoint", {version: 1, path: bad, ms: 3}),
    line(6.5, "checkpoint", {version: 2, path: bad, error: bad}),
    line(7, "task_quarantined", {shard: bad, begin: 0, end: 5, failures: 3, reason: bad}),
    line(8, bad, {[bad]: bad}),
    line(8.5, "toString", {x: 1}),
    line(9, "pod_ended", {pod: bad, id: 0, reason: bad, failure: true}),
    line(10, "job_end", {state: bad, reason: bad, exit_code: 1, step: 1}),
  ].join("\n") + "\n";
};
