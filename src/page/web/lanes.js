// Where things are in the picture of the lanes, from top to bottom: labels of
// worlds, rows, what the whole job does, throughput, axis.
const lanes = {
  canvas: null, width: 0, selected: null, pointer: null,
  top: 26, jobHeight: 22, rateHeight: 54, axisHeight: 22, groupGap: 8,

  rowHeight(count) {
    if (count <= 8) return 32;
    if (count <= 16) return 24;
    if (count <= 32) return 16;
    if (count <= 64) return 10;
    return Math.max(4, Math.floor(640 / count));
  },
  layout(width) {
    const rows = store.lanes();
    const height = this.rowHeight(rows.length);
    const narrow = width < 560;
    const left = narrow ? 58 : 92;
    const servers = rows.findIndex(row => row.server);
    const gap = servers > 0 ? this.groupGap : 0;
    const bottom = this.top + Math.max(1, rows.length) * height + gap;
    const jobBottom = bottom + 6 + this.jobHeight;
    const rateBottom = jobBottom + 4 + this.rateHeight;
    return {
      rows, rowHeight: height, narrow, left, right: width - 8, bottom, jobTop: bottom + 6, jobBottom,
      rateTop: jobBottom + 4, rateBottom, height: rateBottom + this.axisHeight,
      barHeight: height >= 20 ? height - 8 : height >= 10 ? height - 3 : height - 1,
      rowTop: i => this.top + i * height + (servers > 0 && i >= servers ? gap : 0),
      x: time => left + (time - view.from) / (view.to - view.from) * (width - 8 - left),
      time: x => view.from + (x - left) / (width - 8 - left) * (view.to - view.from),
    };
  },

  rowAt(place, y) {
    for (let i = 0; i < place.rows.length; ++i) {
      const top = place.rowTop(i);
      if (y >= top && y < top + place.rowHeight) return i;
    }
    return -1;
  },
  spanAt(row, time, slack) {
    let best = null, distance = slack;
    for (const span of row.spans) {
      const end = span.end ?? store.end();
      const away = time < span.begin ? span.begin - time : time > end ? time - end : 0;
      if (away === 0) return span;
      if (away < distance) { best = span; distance = away; }
    }
    return best;
  },
  nearest(list, time, slack) {
    let best = null, distance = slack;
    for (const item of list) {
      const away = Math.abs(item.time - time);
      if (away <= distance) { best = item; distance = away; }
    }
    return best;
  },

  // What is under the pointer, as lines of text; the first is the title.
  describe(place, x, y) {
    if (x < place.left - 2 || x > place.right + 4) return null;
    const time = place.time(x), slack = (view.to - view.from) / (place.right - place.left) * 5;
    const world = this.nearest(store.worlds.values(), time, slack);
    if (y < this.top && world) return describeWorld(world);
    if (y >= place.jobTop && y < place.jobBottom) {
      const found = this.nearest(store.marks, time, slack * 2) ||
        this.nearest(store.evaluations, time, slack * 2) || this.nearest(store.checkpoints, time, slack * 2);
      return found ? describeMark(found) : null;
    }
    if (y >= place.rateTop && y <= place.height) {
      const point = store.pointAt(time);
      return point && time <= store.end() ? [grouped(point[4]) + " records/s", elapsedText(time),
        plural(point[5], "worker") + ", step " + grouped(point[1])] : null;
    }
    const i = this.rowAt(place, y);
    if (i < 0) return world ? describeWorld(world) : null;
    const span = this.spanAt(place.rows[i], time, slack);
    const lines = span ? describeSpan(span, time) : [];
    if (world) lines.push(...describeWorld(world));
    return lines.length ? lines : null;
  },
};

const elapsedText = time => tickText(time - store.begin, view.to - view.from < 30 ? 0.01 : 1) +
  " after the start (" + clock(time) + ")";
const describeWorld = world => [
  world.worlds > 1 ? "generations " + (world.generation - world.worlds + 1) + " to " + world.generation :
    "generation " + world.generation,
  world.cause || "start",
  plural(world.size, "worker") + ", paused for " + milliseconds(world.pause_ms) +
    (world.worlds > 1 ? " at most, " + milliseconds(world.total_pause_ms) + " in all" : ""),
  elapsedText(world.time),
];
const stateTexts = {saving: "saving a checkpoint", silent: "silent"};
const describeSpan = (span, time) => {
  const end = span.end ?? store.end();
  if (span.members > 1) {
    return [plural(span.members, span.type === "ps" ? "server" : "worker") + " for a short time each",
      span.lost ? span.lost + " lost" : "none lost",
      duration(span.begin - store.begin) + " to " + duration(end - store.begin)];
  }
  const lines = [nameOf(span) + ": " + (stateTexts[span.state] || span.state),
    duration(span.begin - store.begin) + " to " + (span.end === null ? "now" : duration(end - store.begin)) +
      " (" + milliseconds((end - span.begin) * 1000) + ")"];
  if (span.ended) lines.push((span.ended === "lost" ? "lost: " : "ended: ") + (span.reason || "no reason known"));
  else if (span.reason) lines.push(span.reason);
  const world = store.worldAt(time);
  if (world && ["training", "evaluating", "saving"].includes(span.state)) lines.push("in generation " + world.generation + " of " + plural(world.size, "worker"));
  return lines;
};
const describeMark = mark => {
  if (mark.metrics) {
    return ["evaluation at step " + mark.step,
      Object.entries(mark.metrics).map(([name, value]) => name + " " + brief(value)).join(", "),
      mark.ms ? "took " + milliseconds(mark.ms) : "", elapsedText(mark.time)].filter(Boolean);
  }
  if (mark.path !== undefined) {
    return ["checkpoint " + mark.version, mark.error ? "failed: " + mark.error : "saved in " + milliseconds(mark.ms),
      mark.path, elapsedText(mark.time)];
  }
  return [mark.text, elapsedText(mark.time)];
};
