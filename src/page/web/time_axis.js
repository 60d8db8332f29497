// The stretch of time that lanes and curves show, and the ticks of axes.
const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120,
  300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

// Times between `from` and `to` that are round when counted from `origin`.
const timeTicks = (from, to, origin, most) => {
  const step = steps.find(s => (to - from) / s <= most) || Math.ceil((to - from) / most / 604800) * 604800;
  const ticks = [];
  for (let i = Math.ceil((from - origin) / step); origin + i * step <= to; ++i) {
    ticks.push({time: origin + i * step, text: tickText(i * step, step)});
  }
  return ticks;
};
const tickText = (elapsed, step) => {
  if (step >= 86400) return Math.round(elapsed / 86400) + "d";
  if (step >= 1) return duration(elapsed);
  const digits = step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  return Math.floor(elapsed / 60 + 1e-9) + ":" + (elapsed % 60).toFixed(digits).padStart(3 + digits, "0");
};

// Round values for a vertical axis.
const valueTicks = (low, high, most) => {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => span / s <= most);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(+(i * step).toPrecision(12));
  return ticks;
};

// Which part of the job is shown. As long as nobody zooms it is all of it, and
// it grows; at the end of a job that runs it follows.
const view = {
  from: 0, to: 1, whole: true, following: true,
  shortest: 0.02,
  // Leaves room on the right for the marks of what happens now.
  limits: () => {
    const span = Math.max(store.end() - store.begin, 2);
    return [store.begin - span * 0.005, store.begin + span * 1.02];
  },
  update() {
    const [low, high] = this.limits();
    if (this.whole) { this.from = low; this.to = high; return; }
    const span = Math.min(this.to - this.from, high - low);
    if (this.following && store.live) this.to = high;
    else this.to = clamp(this.to, low + span, Math.max(high, low + span));
    this.from = this.to - span;
  },
  set(from, to) {
    const [low, high] = this.limits();
    const span = clamp(to - from, this.shortest, high - low);
    const middle = (from + to) / 2;
    this.from = clamp(middle - span / 2, low, high - span);
    this.to = this.from + span;
    this.whole = span >= (high - low) * 0.999;
    this.following = this.to >= high - span * 0.001;
    this.update();
    redraw();
  },
  // `where` stays where it is on the screen.
  zoom(factor, where) {
    const middle = where ?? (this.from + this.to) / 2;
    this.set(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  },
  move(share) {
    const by = (this.to - this.from) * share;
    this.set(this.from + by, this.to + by);
  },
  all() { const [low, high] = this.limits(); this.set(low, high); },
  last(seconds) { const high = this.limits()[1]; this.set(high - seconds, high); },
};
