// All that is known of the job: answers of /api/v1/update, put together.
const store = {
  status: null, cursor: 0, begin: 0, now: 0, offset: 0, live: false, ended: false,
  totals: {}, spans: new Map(), worlds: new Map(), points: [], checkpoints: [], evaluations: [],
  marks: [], events: [], flags: [], command: "", resolution: 0, model: null,

  apply(update) {
    if (update.all) {
      this.spans.clear();
      this.worlds.clear();
      this.points = []; this.checkpoints = []; this.evaluations = []; this.marks = []; this.events = [];
      this.flags = update.flags || [];
      this.command = update.command || "";
      this.model = null;
    }
    if (update.model) this.model = update.model;
    this.status = update.status;
    this.cursor = update.cursor;
    this.begin = update.begin || update.now;
    this.now = update.now;
    this.offset = update.now - Date.now() / 1000;
    this.ended = update.ended;
    this.totals = update.totals;
    this.resolution = update.resolution;
    for (const span of update.spans) this.spans.set(span.id, span);
    for (const world of update.worlds) this.worlds.set(world.id, world);
    this.points.push(...update.points);
    this.checkpoints.push(...update.checkpoints);
    this.evaluations.push(...update.evaluations);
    this.marks.push(...update.marks);
    this.events.push(...update.events);
    // The master forgets, too.
    this.events = this.events.slice(-1000);
    this.checkpoints = this.checkpoints.slice(-512);
    this.marks = this.marks.slice(-1024);
    this.rows = null;
  },

  // The time up to which lanes of those that are there reach.
  end() { return this.live && !this.ended ? Math.max(this.now, Date.now() / 1000 + this.offset) : this.now; },

  // Spans by row, in order of time; workers first, then servers.
  lanes() {
    if (this.rows) return this.rows;
    const rows = new Map();
    for (const span of this.spans.values()) {
      if (!rows.has(span.row)) rows.set(span.row, {row: span.row, server: span.type === "ps", spans: []});
      rows.get(span.row).spans.push(span);
    }
    this.rows = [...rows.values()].sort((a, b) => a.server - b.server || a.row - b.row);
    for (const row of this.rows) row.spans.sort((a, b) => a.begin - b.begin || a.id - b.id);
    return this.rows;
  },
  worldList() { return [...this.worlds.values()].sort((a, b) => a.time - b.time); },
  // The world of a time, or nothing.
  worldAt(time) {
    let found = null;
    for (const world of this.worlds.values()) {
      if (world.time <= time && (!found || world.time > found.time)) found = world;
    }
    return found;
  },
  pointAt(time) {
    let low = 0, high = this.points.length - 1;
    if (high < 0 || time < this.points[0][0]) return null;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.points[middle][0] <= time) low = middle; else high = middle - 1;
    }
    return this.points[low];
  },
};
const nameOf = span => (span.type === "ps" ? "server " : "worker ") + span.member;
// The kind of a change, by its cause.
const kindOfWorld = world => /\blost\b|died|failed|killed/.test(world.cause) ? "lost" :
  /\bjoined\b|start/.test(world.cause) ? "joined" : "left";
