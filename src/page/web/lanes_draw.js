// The picture of the lanes.
const drawLanes = () => {
  const canvas = lanes.canvas;
  const place = lanes.layout(canvas.clientWidth);
  const ready = prepareCanvas(canvas, place.height);
  if (!ready) return;
  const {draw, width} = ready;
  canvas.dataset.rows = place.rows.length;
  canvas.dataset.from = (view.from - store.begin).toFixed(3);
  canvas.dataset.to = (view.to - store.begin).toFixed(3);
  drawGround(draw, place, width);
  draw.save();
  draw.beginPath();
  draw.rect(place.left, 0, place.right - place.left + 8, place.height);
  draw.clip();
  drawWorldLines(draw, place);
  place.rows.forEach((row, i) => drawRow(draw, place, row, i));
  drawPauses(draw, place);
  drawEnds(draw, place);
  drawWorldLabels(draw, place);
  drawJob(draw, place);
  drawRate(draw, place);
  draw.restore();
  drawPointer(draw, place);
};

const drawGround = (draw, place, width) => {
  draw.textAlign = "right";
  const tall = place.rowHeight >= 14;
  const every = tall ? 1 : Math.ceil(14 / place.rowHeight);
  place.rows.forEach((row, i) => {
    const top = place.rowTop(i), last = row.spans[row.spans.length - 1];
    if (lanes.selected === i) {
      draw.fillStyle = colors.grid;
      draw.fillRect(0, top, width, place.rowHeight);
    }
    const open = last.end === null;
    draw.fillStyle = open ? colors.text : colors.soft;
    draw.globalAlpha = open ? 1 : 0.7;
    const text = place.narrow || !tall ? (row.server ? "s" : "w") + last.member : nameOf(last);
    if (i % every === 0) draw.fillText(text, place.left - 10, top + place.rowHeight / 2);
    draw.globalAlpha = 1;
    if (place.rowHeight >= 10) {
      draw.fillStyle = colors.grid;
      draw.fillRect(place.left, top + place.rowHeight / 2 - 0.5, place.right - place.left, 1);
    }
  });
  draw.fillStyle = colors.soft;
  draw.fillText("job", place.left - 10, (place.jobTop + place.jobBottom) / 2);
  draw.fillText(place.narrow ? "rec/s" : "records/s", place.left - 10, place.rateTop + 8);
  const points = visible(store.points, view.from, view.to);
  if (points.length > 1) draw.fillText(brief(highestRate(points)), place.left - 10, place.rateTop + 23);
  for (const tick of timeTicks(view.from, view.to, store.begin, (place.right - place.left) / 90)) {
    const x = place.x(tick.time);
    if (x < place.left - 1) continue;
    draw.fillStyle = colors.grid;
    draw.fillRect(Math.round(x), lanes.top, 1, place.rateBottom - lanes.top);
    draw.fillStyle = colors.soft;
    draw.textAlign = x < place.left + 16 ? "left" : x > place.right - 24 ? "right" : "center";
    draw.fillText(tick.text, x, place.rateBottom + 12);
  }
};

const bar = (draw, x, y, w, h, first, last) => {
  const r = Math.min(6, h / 2, w / 2);
  draw.beginPath();
  draw.roundRect(x, y, w, h, [first ? r : 0, last ? r : 0, last ? r : 0, first ? r : 0]);
  draw.fill();
};

const drawRow = (draw, place, row, i) => {
  const y = place.rowTop(i) + (place.rowHeight - place.barHeight) / 2, h = place.barHeight;
  const end = store.end();
  row.spans.forEach((span, k) => {
    const from = place.x(span.begin), to = place.x(span.end ?? end);
    if (to < place.left - 4 || from > place.right + 8) return;
    const before = row.spans[k - 1], after = row.spans[k + 1];
    const joined = before && !before.ended && before.member === span.member;
    const goesOn = after && !span.ended && after.member === span.member;
    const x = Math.max(from, place.left - 20), w = Math.max(Math.min(to, place.right + 20) - x, 1);
    // Many thin bars of full colour dazzle.
    const strong = span.members > 1 ? 0.6 : h < 8 ? 0.8 : 1;
    const fills = onTop[span.state] ? ["training", span.state] : [span.state];
    for (const state of fills) {
      draw.fillStyle = colors[state] || colors.training;
      // What is shorter than a pixel has no more colour than it has width:
      // many short evaluations must not look like a long one.
      draw.globalAlpha = strong * (onTop[state] ? clamp(to - from, 0, 1) : 1);
      bar(draw, x, y, w, h, !joined, !goesOn);
    }
    draw.globalAlpha = strong;
    if (span.state === "starting" && h >= 8 && w > 6) hatch(draw, x, y, w, h, 7);
    if (span.state === "silent" && h >= 8 && w > 4) hatch(draw, x, y, w, h, 5);
    draw.globalAlpha = 1;
    if (h >= 14) drawBarText(draw, place, span, Math.max(from, place.left), Math.min(to, place.right), y + h / 2);
  });
};
const onTop = {evaluating: true, saving: true};
const hatch = (draw, x, y, w, h, step) => {
  draw.save();
  draw.beginPath();
  draw.rect(x, y, w, h);
  draw.clip();
  draw.strokeStyle = colors.panel;
  draw.globalAlpha = 0.45;
  draw.lineWidth = step > 5 ? 2 : 1;
  draw.beginPath();
  for (let s = Math.floor((x - h) / step) * step; s < x + w; s += step) {
    draw.moveTo(s, y + h);
    draw.lineTo(s + h, y);
  }
  draw.stroke();
  draw.restore();
};
const drawBarText = (draw, place, span, from, to, y) => {
  // White text could not be read on their colours.
  if (["starting", "joining", "evaluating", "saving", "silent"].includes(span.state)) return;
  const text = span.members > 1 ? plural(span.members, "worker") : nameOf(span);
  draw.font = canvasFont(11, 600);
  const wide = draw.measureText(text).width;
  if (to - from > wide + 34) {
    draw.fillStyle = colors["bar-text"];
    draw.textAlign = "left";
    draw.fillText(text, from + 10, y + 0.5);
  }
  draw.font = canvasFont(11);
};

// How lives ended, over all bars.
const drawEnds = (draw, place) => {
  place.rows.forEach((row, i) => {
    const y = place.rowTop(i) + place.rowHeight / 2;
    for (const span of row.spans) {
      if (!span.ended || (span.ended === "left" && !span.lost && store.ended && span.end >= store.now - 2)) continue;
      const x = place.x(span.end);
      if (x < place.left - 8 || x > place.right + 8) continue;
      // One of several that were merged may have been lost, the last one not.
      const lost = span.lost > 0 || span.ended === "lost";
      if (place.rowHeight < 16) {
        if (!lost) continue;
        draw.fillStyle = colors.lost;
        draw.strokeStyle = colors.panel;
        draw.lineWidth = 1;
        draw.beginPath();
        draw.arc(x, y, 3.5, 0, 7);
        draw.fill();
        draw.stroke();
      } else if (lost) {
        cross(draw, x, y, place.rowHeight >= 24 ? 8 : 6);
      } else {
        draw.fillStyle = colors.panel;
        draw.strokeStyle = colors.left;
        draw.lineWidth = 2;
        draw.beginPath();
        draw.arc(x, y, 4.5, 0, 7);
        draw.fill();
        draw.stroke();
      }
    }
  });
};
const cross = (draw, x, y, r) => {
  draw.fillStyle = colors.lost;
  draw.strokeStyle = colors.panel;
  draw.lineWidth = 2;
  draw.beginPath();
  draw.arc(x, y, r, 0, 7);
  draw.fill();
  draw.stroke();
  draw.strokeStyle = "#fff";
  const d = r * 0.38;
  draw.beginPath();
  draw.moveTo(x - d, y - d); draw.lineTo(x + d, y + d);
  draw.moveTo(x + d, y - d); draw.lineTo(x - d, y + d);
  draw.stroke();
};

// While nobody trains, bars are pale: to be seen from a pause of two pixels on.
const drawPauses = (draw, place) => {
  const scale = (place.right - place.left) / (view.to - view.from);
  draw.fillStyle = colors.panel;
  draw.globalAlpha = 0.55;
  for (const world of store.worlds.values()) {
    const pause = world.pause_ms / 1000 * scale, x = place.x(world.time);
    if (pause < 2 || world.worlds > 1 || x < place.left || x - pause > place.right) continue;
    draw.fillRect(x - pause, lanes.top, pause, place.bottom - lanes.top);
  }
  draw.globalAlpha = 1;
};

// Where one world ends and the next begins; while nobody trains, a band.
const drawWorldLines = (draw, place) => {
  const scale = (place.right - place.left) / (view.to - view.from);
  const shown = store.worldList().filter(w => w.time >= view.from && w.time - w.pause_ms / 1000 <= view.to);
  const crowded = shown.length > (place.right - place.left) / 8;
  for (const world of shown) {
    const x = place.x(world.time), pause = world.pause_ms / 1000 * scale;
    draw.fillStyle = colors[kindOfWorld(world)];
    if (pause >= 2) {
      draw.globalAlpha = 0.16;
      draw.fillRect(x - pause, lanes.top, pause, place.bottom - lanes.top);
    }
    draw.globalAlpha = crowded ? 0.2 : 0.75;
    draw.fillRect(x - 0.5, lanes.top - 4, 1, (crowded ? lanes.top : place.rateBottom) - lanes.top + 4);
    draw.globalAlpha = 1;
  }
};
// The longest pauses are labelled first, others where there is room.
const drawWorldLabels = (draw, place) => {
  const taken = [];
  const worlds = store.worldList().filter(w => w.time >= view.from && w.time <= view.to)
    .sort((a, b) => b.pause_ms - a.pause_ms);
  draw.font = canvasFont(10.5, 600);
  draw.textAlign = "left";
  let labels = 0;
  for (const world of worlds) {
    const text = (world.worlds > 1 ? "×" + world.worlds + " " : "g" + world.generation) +
      (world.pause_ms > 0 ? " · " + milliseconds(world.pause_ms) : "");
    const wide = draw.measureText(text).width + 12;
    const x = clamp(place.x(world.time) - wide / 2, place.left, place.right - wide);
    if (taken.some(([from, to]) => x < to + 4 && x + wide > from - 4)) continue;
    taken.push([x, x + wide]);
    draw.fillStyle = colors[kindOfWorld(world)];
    draw.globalAlpha = 0.16;
    bar(draw, x, 3, wide, 17, true, true);
    draw.globalAlpha = 1;
    draw.fillText(text, x + 6, 12);
    if (++labels > 60) break;
  }
  draw.font = canvasFont(11);
};

const drawJob = (draw, place) => {
  const y = (place.jobTop + place.jobBottom) / 2;
  draw.fillStyle = colors.grid;
  draw.fillRect(place.left, y - 0.5, place.right - place.left, 1);
  draw.fillStyle = colors.evaluation;
  for (const mark of store.evaluations) {
    const from = place.x(mark.time - mark.ms / 1000), to = place.x(mark.time);
    if (to >= place.left && from <= place.right) bar(draw, from, y - 5, Math.max(4, to - from), 10, true, true);
  }
  for (const mark of store.checkpoints) {
    const x = place.x(mark.time);
    if (x < place.left - 4 || x > place.right + 4) continue;
    draw.fillStyle = mark.error ? colors.lost : colors.checkpoint;
    draw.beginPath();
    draw.moveTo(x, y - 5); draw.lineTo(x + 5, y); draw.lineTo(x, y + 5); draw.lineTo(x - 5, y);
    draw.fill();
  }
  draw.font = canvasFont(10.5, 600);
  let free = -Infinity;
  for (const mark of store.marks) {
    const text = {scaled: mark.text.replace(/^scaled from (\d+) to (\d+).*/, "$1 → $2"),
      ps_takeover: "takeover", ps_backup_lost: "no backup", ps_scaling: "moving", ps_scaled: "moved", master_restarted: "master", task_quarantined: "set aside"}[mark.kind] || mark.kind;
    const wide = draw.measureText(text).width + 12, there = place.x(mark.time);
    // Two at the same time stand beside each other; a crowd is left out.
    const x = there < free && free - there < 80 ? free : there;
    if (x < place.left - wide || x > place.right || x < free) continue;
    free = x + wide + 2;
    draw.fillStyle = mark.kind === "task_quarantined" ? colors.lost : colors.accent;
    bar(draw, x, y - 9, wide, 18, false, true);
    draw.fillStyle = "#fff";
    draw.textAlign = "left";
    draw.fillText(text, x + 6, y + 0.5);
  }
  draw.font = canvasFont(11);
};

const highestRate = points => points.reduce((most, p) => Math.max(most, p[4]), 0) || 1;
// Throughput on the same axis: a kill costs as much as one can see here.
const drawRate = (draw, place) => {
  const points = visible(store.points, view.from, view.to);
  if (points.length < 2) return;
  const most = highestRate(points);
  const y = rate => place.rateBottom - rate / most * (place.rateBottom - place.rateTop - 4);
  draw.beginPath();
  points.forEach((p, i) => i ? draw.lineTo(place.x(p[0]), y(p[4])) : draw.moveTo(place.x(p[0]), y(p[4])));
  draw.strokeStyle = colors.training;
  draw.lineWidth = 1.5;
  draw.stroke();
  draw.lineTo(place.x(points[points.length - 1][0]), place.rateBottom);
  draw.lineTo(place.x(points[0][0]), place.rateBottom);
  draw.fillStyle = colors.area;
  draw.fill();
};
// The points of a stretch of time, and one more on each side.
const visible = (points, from, to) => {
  let first = points.findIndex(p => p[0] >= from);
  if (first < 0) first = points.length;
  let last = points.findIndex(p => p[0] > to);
  if (last < 0) last = points.length;
  return points.slice(Math.max(0, first - 1), last + 1);
};

const drawPointer = (draw, place) => {
  const pointer = lanes.pointer;
  if (!pointer || pointer.x < place.left || pointer.x > place.right) return;
  draw.fillStyle = colors.soft;
  draw.globalAlpha = 0.6;
  draw.fillRect(Math.round(pointer.x), lanes.top, 1, place.rateBottom - lanes.top);
  draw.globalAlpha = 1;
};
