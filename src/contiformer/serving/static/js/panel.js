// The panel of one channel: observations that can be dragged, added and deleted, and the model's curve.

import { el } from "./dom.js";
import { heat, number, time as shownTime } from "./format.js";
import { Plot, spread, veil } from "./plot.js";
import { theme } from "./theme.js";

const REACH = 11; // pixels within which a pointer hits an observation
const HEIGHT = 148;

/** Find the nearest mark to a pointer, in CSS pixels of the plotting area; `marks` have x and y. */
export function nearest(marks, x, y, reach = REACH) {
  let [best, least] = [null, reach * reach];
  for (const mark of marks) {
    const distance = (mark.x - x) ** 2 + (mark.y - y) ** 2;
    if (distance <= least) [best, least] = [mark, distance];
  }
  return best;
}

/** Pointer, touch and menu events of a plot as few questions.
 *
 * hit(x, y): the mark there or null; start(mark), drag(mark, t, y), end(mark); click(x, y), twice(x, y), menu(mark);
 * zoom([start, end]): a stretch of time was selected with the mouse.
 */
export function interact(u, { hit, start, drag, end, click, twice, menu, zoom }) {
  const over = u.over;
  let held = null;
  let moved = false;
  let from = null; // where a selection of time began
  const place = (event) => {
    const box = over.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  over.addEventListener("touchstart", (event) => {
    // a finger on an observation drags it, elsewhere it scrolls the page
    const [x, y] = place(event.touches[0]);
    if (hit(x, y)) event.preventDefault();
  }, { passive: false });
  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [x, y] = place(event);
    held = hit(x, y);
    moved = false;
    // a finger scrolls the page
    from = held || event.pointerType === "touch" ? null : x;
    if (!held && from === null) return;
    over.setPointerCapture(event.pointerId);
    if (!held) return;
    over.classList.add("grabbing");
    start(held);
  });
  over.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (from !== null) {
      moved ||= Math.abs(x - from) > REACH;
      if (moved) u.setSelect({ ...span(x), top: 0, height: over.clientHeight }, false);
      return;
    }
    if (!held) {
      over.classList.toggle("grab", Boolean(hit(x, y)));
      return;
    }
    moved = true;
    held = drag(held, x, y) ?? held;
  });
  const span = (x) => {
    const [left, right] = [from, Math.max(0, Math.min(over.clientWidth, x))].sort((a, b) => a - b);
    return { left, width: right - left };
  };
  const release = (event) => {
    if (from !== null) {
      const { left, width } = span(place(event)[0]);
      if (moved && event.type === "pointerup") zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
      u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      from = null;
      return;
    }
    if (!held) return;
    over.classList.remove("grabbing");
    end(held, moved);
    held = null;
  };
  over.addEventListener("pointerup", release);
  over.addEventListener("pointercancel", release);
  over.addEventListener("click", (event) => {
    const [x, y] = place(event);
    if (!moved && !hit(x, y)) click?.(x, y);
    moved = false;
  });
  over.addEventListener("dblclick", (event) => {
    const [x, y] = place(event);
    if (!hit(x, y)) twice?.(x, y);
  });
  over.addEventListener("contextmenu", (event) => {
    const mark = hit(...place(event));
    if (!mark) return;
    event.preventDefault();
    menu(mark);
  });
}

/** One channel of the view. `view` has series, about, domain, until, adding, layer, and changed(); see series.js. */
export class Panel {
  constructor(view, channel) {
    Object.assign(this, { view, channel, curve: null, target: null, selected: null, held: null });
    const { name, unit } = view.channels[channel];
    this.name = name;
    this.unit = unit;
    this.reading = el("span", { class: "read" });
    this.title = el("button", { class: "name", title: `${name}: choose for the attribution` , onclick: () => view.focus(channel) }, name);
    this.sub = el("span", { class: "dim small" });
    this.place = el("div", { class: "plot", tabindex: "0", role: "group", onkeydown: (event) => this.key(event) });
    this.node = el("div", { class: "card panel" }, el("div", { class: "panel-title" }, this.title, this.sub, this.reading), this.place);
  }

  /** Make the plot, once the node is in the page. */
  mount() {
    this.predicted = this.view.outputOf(this.channel) >= 0;
    this.plot = new Plot(this.place, {
      height: HEIGHT, about: this.view.about, sync: "time",
      x: () => this.view.domain, y: () => this.range(),
      lines: [
        { colour: () => theme.accent, width: 1.6 },
        { colour: () => "transparent", width: 0 }, { colour: () => "transparent", width: 0 },
      ],
      band: this.predicted ? [3, 2] : undefined,
      under: (u, ctx, ratio) => veil(u, ctx, ratio, this.view.until),
      over: (u, ctx, ratio) => this.drawPoints(u, ctx, ratio),
      cursorAt: (t) => this.read(t),
    });
    const { u } = this.plot;
    interact(u, {
      hit: (x, y) => nearest(this.marks(), x, y),
      start: (mark) => { this.frozen = this.range(); this.sideways = false; this.select(mark.row); this.merge = `drag-${this.channel}-${performance.now()}`; },
      drag: (mark, x, y) => this.drag(mark, x, y),
      end: () => { this.frozen = null; this.merge = null; this.plot.draw(); },
      click: (x, y) => { if (this.view.adding) this.add(u.posToVal(x, "x"), u.posToVal(y, "y")); else this.select(null); },
      twice: (x, y) => { if (!this.view.adding) this.add(u.posToVal(x, "x"), u.posToVal(y, "y")); },
      menu: (mark) => this.remove(mark.row),
      zoom: (range) => this.view.frame.zoom(range),
    });
    this.update();
  }

  points() {
    return this.view.series.of(this.channel);
  }

  marks() {
    const { u } = this.plot;
    return this.points().map((p) => ({ ...p, x: u.valToPos(p.t, "x"), y: u.valToPos(p.v, "y") }));
  }

  range() {
    if (this.frozen) return this.frozen;
    const values = this.points().map((p) => p.v);
    const c = this.curve;
    if (c) values.push(...c.middle, ...(c.low ?? []), ...(c.high ?? []));
    if (this.target) values.push(...this.target.values);
    if (values.some((v) => v !== null)) return spread(values, 0.1);
    const { typical } = this.view;
    return [typical[0][this.channel], typical[1][this.channel]];
  }

  /** Show new observations, curve and layer. */
  update() {
    if (!this.plot) return;
    const count = this.points().length;
    const { layer, until } = this.view;
    const total = layer?.signed ? layer.total(this.points().filter((p) => until === null || p.t <= until).map((p) => p.row), this.channel) : null;
    const sum = total === null ? null : `Σ ${total > 0 ? "+" : ""}${number(total, 2)}`;
    this.sub.textContent = [this.unit, `${count} obs.`, sum].filter(Boolean).join(" · ");
    this.place.setAttribute("aria-label", `${this.name}, ${count} observations. Left and right choose one, up and down change it, Delete removes it, Enter adds one.`);
    this.node.classList.toggle("focus", this.view.focused === this.channel && this.predicted);
    const c = this.curve;
    this.plot.set(c ? [c.times, c.middle, c.low ?? c.middle, c.high ?? c.middle] : [[], [], [], []]);
  }

  drawPoints(u, ctx, ratio) {
    const points = this.points();
    const { until, layer } = this.view;
    const known = (p) => until === null || p.t <= until;
    const at = (p) => [u.valToPos(p.t, "x", true), u.valToPos(p.v, "y", true)];
    if (!this.predicted && points.length > 1) this.drawLine(points.filter(known).map(at), ctx, ratio);
    if (this.target) this.drawTarget(u, ctx, ratio);
    if (layer) this.drawStrip(u, ctx, ratio, points.filter(known));
    for (const p of points) {
      const [x, y] = at(p);
      const weight = layer && known(p) ? layer.of(p.row, this.channel) : null;
      const chosen = p.row === this.selected;
      ctx.beginPath();
      ctx.arc(x, y, (chosen ? 5 : points.length > 120 ? 2.2 : 3.2) * ratio, 0, 2 * Math.PI);
      // hollow: not known to the model
      ctx.fillStyle = known(p) ? (weight === null ? theme.point : heat(weight, layer.signed, theme)) : theme.card;
      ctx.fill();
      if (!chosen && known(p) && weight === null) continue;
      ctx.lineWidth = (chosen ? 2 : known(p) ? 0.75 : 1.2) * ratio;
      ctx.strokeStyle = chosen ? theme.accent : known(p) ? theme.faint : theme.unknown;
      ctx.stroke();
    }
  }

  drawLine(places, ctx, ratio) {
    ctx.beginPath();
    for (const [x, y] of places) ctx.lineTo(x, y);
    ctx.lineWidth = ratio;
    ctx.strokeStyle = theme.unknown;
    ctx.stroke();
  }

  drawTarget(u, ctx, ratio) {
    ctx.strokeStyle = theme.target;
    ctx.lineWidth = 1.2 * ratio;
    const size = 2.6 * ratio;
    this.target.times.forEach((t, n) => {
      const v = this.target.values[n];
      if (v === null) return;
      ctx.strokeRect(u.valToPos(t, "x", true) - size, u.valToPos(v, "y", true) - size, 2 * size, 2 * size);
    });
  }

  drawStrip(u, ctx, ratio, points) {
    const { layer } = this.view;
    const { top, height } = u.bbox;
    const deep = 6 * ratio;
    for (const p of points) {
      const weight = layer.of(p.row, this.channel);
      if (weight === null) continue;
      ctx.fillStyle = heat(weight, layer.signed, theme);
      ctx.fillRect(u.valToPos(p.t, "x", true) - 2 * ratio, top + height - deep, 4 * ratio, deep);
    }
  }

  /** Show the observation, or the curve, nearest to a time. */
  read(t) {
    if (t === null) {
      this.reading.textContent = "";
      return;
    }
    const parts = [];
    const c = this.curve;
    if (c && c.times.length) {
      let n = c.times.findIndex((x) => x >= t);
      if (n < 0) n = c.times.length - 1;
      const band = c.low ? ` (${number(c.low[n], 3)} – ${number(c.high[n], 3)})` : "";
      if (t >= c.times[0]) parts.push(`${number(c.middle[n], 3)}${band}`);
    }
    const points = this.points();
    if (points.length && !c) {
      const p = points.reduce((a, b) => (Math.abs(b.t - t) < Math.abs(a.t - t) ? b : a));
      parts.push(`${number(p.v)} at ${shownTime(p.t, this.view.about)}`);
    }
    this.reading.textContent = parts.join(" ");
  }

  describe(t, v) {
    return `${this.name} ${number(v)}${this.unit ? ` ${this.unit}` : ""} at ${shownTime(t, this.view.about)}`;
  }

  drag(mark, x, y) {
    const { u } = this.plot;
    const { series } = this.view;
    const row = this.selected ?? mark.row;
    const before = series.rows[row];
    // a drag up or down keeps the time
    if (Math.abs(x - mark.x) > 6) this.sideways = true;
    const t = this.sideways ? this.inside(u.posToVal(x, "x")) : before.t;
    const v = precise(u.posToVal(y, "y"), this.frozen);
    this.selected = series.move(row, this.channel, t, v, `moved to ${this.describe(t, v)}`, this.merge);
    this.update();
    this.view.changed();
    return { ...mark, row: this.selected };
  }

  inside(t) {
    const [start, end] = this.view.domain;
    return precise(Math.min(end, Math.max(start, t)), this.view.domain);
  }

  add(t, v) {
    const at = this.inside(t);
    const value = precise(v, this.range());
    this.selected = this.view.series.add(this.channel, at, value, `added ${this.describe(at, value)}`);
    this.view.chose(this);
    this.update();
    this.view.changed();
  }

  remove(row) {
    const { series } = this.view;
    const { t, values } = series.rows[row];
    series.remove(row, this.channel, `deleted ${this.describe(t, values[this.channel])}`);
    this.selected = null;
    this.update();
    this.view.changed();
  }

  select(row) {
    this.selected = row;
    if (row !== null) this.view.chose(this);
    this.plot.draw();
  }

  key(event) {
    const points = this.points();
    const place = points.findIndex((p) => p.row === this.selected);
    const chosen = points[place];
    const { key } = event;
    if (key === "ArrowRight" || key === "ArrowLeft") {
      const next = points[chosen ? place + (key === "ArrowRight" ? 1 : -1) : 0];
      if (next) this.select(next.row);
    } else if ((key === "ArrowUp" || key === "ArrowDown") && chosen) {
      const [low, high] = this.range();
      const v = precise(chosen.v + (key === "ArrowUp" ? 1 : -1) * (high - low) * (event.shiftKey ? 0.1 : 0.02), [low, high]);
      this.view.series.move(chosen.row, this.channel, chosen.t, v, `moved to ${this.describe(chosen.t, v)}`, `key-${this.channel}-${chosen.row}`);
      this.update();
      this.view.changed();
    } else if ((key === "Delete" || key === "Backspace") && chosen) {
      this.remove(chosen.row);
    } else if (key === "Enter") {
      const [low, high] = this.range();
      const [start, end] = this.view.domain;
      this.add(this.view.until ?? (start + end) / 2, (low + high) / 2);
    } else if (key === "Escape") {
      this.select(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  destroy() {
    this.plot?.destroy();
  }
}

/** A number with as many digits as a pixel is worth. */
export function precise(x, [low, high]) {
  const step = 10 ** Math.floor(Math.log10(Math.max(high - low, 1e-12) / 500));
  return Number((Math.round(x / step) * step).toPrecision(12));
}
