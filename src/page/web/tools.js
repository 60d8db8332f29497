// Small helpers: elements, numbers, times. Text from the job reaches the page
// through textContent only, never as markup.
const at = id => document.getElementById(id);

// make("td", {class: "number"}, "text", child, …)
const make = (tag, properties, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(c => c !== null && c !== undefined));
  return element;
};
const fill = (element, ...children) => {
  element.textContent = "";
  element.append(...children.filter(c => c !== null && c !== undefined));
};
const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const isNumber = x => typeof x === "number" && Number.isFinite(x);
const plural = (n, noun) => n + " " + noun + (n === 1 ? "" : "s");
const grouped = n => Math.round(n).toLocaleString("en-US");
// Of a slow job the first digits count.
const perSecond = n => n > 0 && n < 10 ? String(+n.toPrecision(2)) : grouped(n);

// 0.01234 -> 0.01234, 12345.6 -> 12.3k
const brief = x => {
  if (!isNumber(x)) return "–";
  const a = Math.abs(x);
  if (a >= 1e9) return +(x / 1e9).toPrecision(3) + "G";
  if (a >= 1e6) return +(x / 1e6).toPrecision(3) + "M";
  if (a >= 1e4) return +(x / 1e3).toPrecision(3) + "k";
  if (a !== 0 && a < 1e-4) return x.toExponential(1);
  return String(+x.toPrecision(4));
};
const milliseconds = ms => !isNumber(ms) ? "–" : ms < 10 ? ms.toFixed(1) + " ms" :
  ms < 1000 ? Math.round(ms) + " ms" : ms < 60000 ? +(ms / 1000).toPrecision(3) + " s" :
  duration(ms / 1000);

const two = n => String(n).padStart(2, "0");
// 75 -> 1:15, 4000 -> 1:06:40, 200000 -> 2d 7:33
const duration = seconds => {
  const s = Math.max(0, Math.round(seconds));
  const days = Math.floor(s / 86400), hours = Math.floor(s / 3600) % 24;
  const minutes = Math.floor(s / 60) % 60;
  if (days > 0) return days + "d " + hours + ":" + two(minutes);
  if (hours > 0) return hours + ":" + two(minutes) + ":" + two(s % 60);
  return minutes + ":" + two(s % 60);
};
const clock = time => {
  const date = new Date(time * 1000);
  return two(date.getHours()) + ":" + two(date.getMinutes()) + ":" + two(date.getSeconds());
};

// What the user chose last; a file that was opened from disk may not keep it.
const remembered = (key, otherwise) => {
  try { return localStorage.getItem("elasticdl." + key) ?? otherwise; } catch { return otherwise; }
};
const remember = (key, value) => {
  try { localStorage.setItem("elasticdl." + key, value); } catch { /* not kept */ }
};

const themes = ["auto", "light", "dark"];
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
let theme = remembered("theme", "auto");
let colors = {};
const readColors = () => {
  const dark = theme === "dark" || (theme === "auto" && darkSystem.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  colors = {};
  for (const name of ["ground", "panel", "text", "soft", "line", "grid", "accent", "training", "working",
      "training-2", "joining", "starting", "serving", "lost", "left", "joined", "evaluation",
      "checkpoint", "evaluating", "saving", "silent", "area", "bar-text"]) {
    colors[name] = style.getPropertyValue("--" + name).trim();
  }
};

// A canvas that is sharp on every screen; null while it has no width.
const prepareCanvas = (canvas, height) => {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (width === 0) return null;
  if (canvas.style.height !== height + "px") canvas.style.height = height + "px";
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  const draw = canvas.getContext("2d");
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw.clearRect(0, 0, width, height);
  draw.font = canvasFont(11);
  draw.textBaseline = "middle";
  return {draw, width, height};
};
const canvasFont = (size, weight) => (weight || 400) + " " + size +
  "px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
