// A chart of curves over the time that the lanes show.
//   series: [{name, color, points: [[time, value], …], faint}]
class Chart {
  constructor(parent, title, tools) {
    this.canvas = make("canvas", {role: "img"});
    this.reading = make("span", {class: "now"});
    this.title = title;
    this.box = make("section", {class: "panel chart", "aria-label": title},
      make("div", {class: "head"}, make("h2", {}, title), this.reading, tools), this.canvas);
    parent.append(this.box);
    this.pointer = null;
    this.series = [];
    this.log = false;
    this.fromZero = false;
    // Values have their names, even a single one.
    this.named = false;
    this.canvas.addEventListener("pointermove", event => { this.pointer = event.offsetX; redraw(); });
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; redraw(); });
  }

  place(width, height) {
    const left = 52, right = width - 10, top = 8, bottom = height - 22;
    let low = Infinity, high = -Infinity;
    for (const one of this.series) {
      for (const p of visible(one.points, view.from, view.to)) {
        if (!isNumber(p[1]) || (this.log && p[1] <= 0)) continue;
        low = Math.min(low, p[1]);
        high = Math.max(high, p[1]);
      }
    }
    if (low > high) return null;
    const log = this.log && low > 0;
    if (this.fromZero) low = Math.min(0, low);
    if (isFlat(low, high)) { low -= Math.abs(low) * 0.5 || 0.5; high += Math.abs(high) * 0.5 || 0.5; }
    const f = log ? Math.log10 : x => x;
    const room = (f(high) - f(low)) * 0.06;
    const bottomValue = this.fromZero && low === 0 ? f(low) : f(low) - room, topValue = f(high) + room;
    return {
      left, right, top, bottom, log,
      x: time => left + (time - view.from) / (view.to - view.from) * (right - left),
      time: x => view.from + (x - left) / (right - left) * (view.to - view.from),
      y: value => bottom - (f(value) - bottomValue) / (topValue - bottomValue) * (bottom - top),
      ticks: log ? logTicks(bottomValue, topValue) : valueTicks(bottomValue, topValue, 5),
    };
  }

  draw() {
    const ready = prepareCanvas(this.canvas, 200);
    if (!ready) return;
    const {draw, width, height} = ready;
    const place = this.place(width, height);
    if (!place) {
      draw.fillStyle = colors.soft;
      draw.textAlign = "center";
      draw.fillText("nothing yet", width / 2, height / 2);
      setText(this.reading, "");
      return;
    }
    this.drawAxes(draw, place);
    draw.save();
    draw.beginPath();
    draw.rect(place.left, 0, place.right - place.left + 4, place.bottom + 1);
    draw.clip();
    for (const one of this.series) this.drawCurve(draw, place, one);
    draw.restore();
    this.read(draw, place);
  }

  drawAxes(draw, place) {
    draw.textAlign = "right";
    for (const value of place.ticks) {
      const y = Math.round(place.y(value));
      draw.fillStyle = colors.grid;
      draw.fillRect(place.left, y, place.right - place.left, 1);
      draw.fillStyle = colors.soft;
      draw.fillText(brief(value), place.left - 8, y);
    }
    for (const tick of timeTicks(view.from, view.to, store.begin, (place.right - place.left) / 80)) {
      const x = place.x(tick.time);
      if (x < place.left - 1) continue;
      draw.textAlign = x > place.right - 20 ? "right" : x < place.left + 12 ? "left" : "center";
      draw.fillStyle = colors.soft;
      draw.fillText(tick.text, x, place.bottom + 13);
    }
    for (const world of store.worlds.values()) {
      if (kindOfWorld(world) !== "lost" || world.time < view.from || world.time > view.to) continue;
      draw.fillStyle = colors.lost;
      draw.globalAlpha = 0.3;
      draw.fillRect(place.x(world.time), place.top, 1, place.bottom - place.top);
      draw.globalAlpha = 1;
    }
  }

  drawCurve(draw, place, one) {
    const points = visible(one.points, view.from, view.to).filter(p => isNumber(p[1]) && (!place.log || p[1] > 0));
    draw.beginPath();
    points.forEach((p, i) => i ? draw.lineTo(place.x(p[0]), place.y(p[1])) : draw.moveTo(place.x(p[0]), place.y(p[1])));
    draw.strokeStyle = one.color;
    draw.globalAlpha = one.faint ? 0.28 : 1;
    draw.lineWidth = one.faint ? 1 : 2;
    draw.lineJoin = "round";
    draw.stroke();
    if (points.length < 40 && !one.faint) {
      draw.fillStyle = one.color;
      for (const p of points) {
        draw.beginPath();
        draw.arc(place.x(p[0]), place.y(p[1]), 3, 0, 7);
        draw.fill();
      }
    }
    draw.globalAlpha = 1;
  }

  // The values under the pointer, or the last ones.
  read(draw, place) {
    const time = this.pointer === null ? Infinity : place.time(this.pointer);
    const texts = [];
    for (const one of this.series) {
      if (one.faint) continue;
      let last = null;
      for (const p of one.points) { if (p[0] <= time && isNumber(p[1])) last = p; }
      if (!last) continue;
      texts.push((this.named || this.series.filter(s => !s.faint).length > 1 ? one.name + " " : "") + brief(last[1]) +
        (this.pointer !== null ? " at " + duration(last[0] - store.begin) + (last[2] !== undefined ? ", step " + grouped(last[2]) : "") : ""));
      if (this.pointer === null) continue;
      draw.fillStyle = one.color;
      draw.beginPath();
      draw.arc(place.x(last[0]), place.y(last[1]), 4, 0, 7);
      draw.fill();
    }
    setText(this.reading, texts.join(" · "));
    this.canvas.setAttribute("aria-label", this.title + ": " + (texts.join(", ") || "nothing yet"));
  }
}
const logTicks = (low, high) => {
  const ticks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); ++power) {
    for (const m of high - low > 2 ? [1] : [1, 2, 5]) {
      const value = m * 10 ** power;
      if (Math.log10(value) >= low && Math.log10(value) <= high) ticks.push(+value.toPrecision(6));
    }
  }
  return ticks.length >= 2 ? ticks : valueTicks(10 ** low, 10 ** high, 4).filter(v => v > 0);
};
// An exponential mean that starts without a bias.
const smooth = (points, weight) => {
  let mean = 0, total = 0;
  return points.filter(p => isNumber(p[1])).map(p => {
    mean = mean * weight + p[1] * (1 - weight);
    total = total * weight + (1 - weight);
    return [p[0], mean / total, p[2]];
  });
};
