// Where the data comes from: the page's own file (a report), or the master, by
// server-sent events or, where these do not come through, by asking.
const token = new URLSearchParams(location.search).get("token") || "";
const headers = {Authorization: "Bearer " + token};
const wait = ms => new Promise(done => setTimeout(done, ms));
const askPeriod = 1000;
// A stream says something every second. A proxy that holds it back is noticed
// by the first message; a connection that is dead by its silence.
const firstMessage = 3000, longestSilence = 10000;

const accept = update => {
  store.apply(update);
  store.live = !store.ended;
  refresh();
};

const readReport = element => {
  accept(JSON.parse(element.textContent));
  store.live = false;
  refresh();
};

// Reads the stream to its end, or until it is silent. Returns whether anything
// came.
const readStream = async () => {
  const control = new AbortController(), heard = {any: false};
  let timer = 0;
  const expect = () => {
    clearTimeout(timer);
    timer = setTimeout(() => control.abort(), heard.any ? longestSilence : firstMessage);
  };
  expect();
  try {
    const reply = await fetch("api/v1/stream?since=" + store.cursor, {headers, signal: control.signal});
    if (!reply.ok || !reply.body) return false;
    await readMessages(reply.body.pipeThrough(new TextDecoderStream()).getReader(), heard, expect);
  } catch (error) {
    if (!control.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
  }
  return heard.any;
};
const readMessages = async (reader, heard, expect) => {
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const message = text.slice(0, end);
      text = text.slice(end + 2);
      if (!message.startsWith("data: ")) continue;
      accept(JSON.parse(message.slice(6)));
      document.documentElement.dataset.source = "stream";
      heard.any = true;
      if (!store.live) return void reader.cancel();
    }
    expect();
  }
};
const askOnce = async () => {
  const reply = await fetch("api/v1/update?since=" + store.cursor, {headers, signal: AbortSignal.timeout(longestSilence)});
  if (reply.status === 401) throw new Error("the link has no valid token");
  if (!reply.ok) throw new Error("HTTP " + reply.status);
  accept(await reply.json());
  document.documentElement.dataset.source = "asking";
};

const follow = async () => {
  let streams = true, silent = 0;
  for (;;) {
    try {
      // Whoever is refused once is not let in a second later either.
      if (streams) streams = await readStream();
      if (store.status && !store.live) return;
      await askOnce();
      if (!store.live) return;
      silent = 0;
    } catch (error) {
      store.live = false;
      if (store.status && !["running", "stopping"].includes(store.status.state)) return refresh();
      setState("no answer", "The master does not answer (" + error.message + "). " +
        (store.status ? "What it said last:" : ""));
      silent = Math.min(silent + 1, 10);
    }
    await wait(askPeriod * Math.max(1, silent));
  }
};

// Scale and stop are the only things that the page changes.
const command = async path => {
  try {
    const reply = await fetch(path, {method: "POST", headers});
    const body = await reply.json();
    return reply.ok ? "" : body.error || "HTTP " + reply.status;
  } catch (error) {
    return error.message;
  }
};
const setUpSteering = () => {
  let silence = 0;
  const answer = text => {
    setText(at("answer"), text);
    clearTimeout(silence);
    silence = setTimeout(() => setText(at("answer"), ""), 10000);
  };
  for (const [id, what, parameter] of [["scale", "worker", "num_workers"], ["scale-servers", "server", "num_ps_pods"]]) {
    at(id).addEventListener("submit", async event => {
      event.preventDefault();
      const count = Number(at(id + "-to").value);
      if (!Number.isInteger(count) || count < 1) return answer("Give a number of " + what + "s of at least 1.");
      const error = await command("api/v1/scale?" + parameter + "=" + count);
      answer(error ? "Not scaled: " + error : plural(count, what) + " asked for.");
    });
  }
  const stop = at("stop");
  let timer = 0;
  stop.addEventListener("click", async () => {
    if (!stop.classList.contains("sure")) {
      stop.classList.add("sure");
      stop.textContent = "Really stop the job?";
      timer = setTimeout(() => { stop.classList.remove("sure"); stop.textContent = "Stop"; }, 5000);
      return;
    }
    clearTimeout(timer);
    stop.classList.remove("sure");
    stop.textContent = "Stop";
    const error = await command("api/v1/stop");
    answer(error ? "Not stopped: " + error : "The job was asked to stop.");
  });
};
const showSteering = () => {
  const able = store.live && store.status.state === "running" && !at("data");
  const servers = store.status.target_servers || 0;
  at("scale").hidden = at("stop").hidden = !able;
  at("scale-servers").hidden = !able || !servers;
  followTarget(at("scale-to"), store.status.target_workers, able);
  followTarget(at("scale-servers-to"), servers, able);
};
// Somebody else may scale, too; what was typed here stays.
const followTarget = (input, count, able) => {
  const target = String(count);
  const untouched = document.activeElement !== input && (!input.value || input.value === input.dataset.target);
  if (able && untouched) input.value = target;
  if (input.value === target) input.dataset.target = target;
};
