// The view of one event sequence: intensities of all types, events as marks in lanes, and the next event.

import { ask, Latest } from "./api.js";
import { el, fill } from "./dom.js";
import { Events } from "./edits.js";
import { colourOf, heat, number, percent, swatch, time } from "./format.js";
import { interact, nearest, precise } from "./panel.js";
import { legend, Plot, veil } from "./plot.js";
import { theme } from "./theme.js";
import { bars, Frame, scaledLayer } from "./view.js";

const LANE = 24;
const NAMED = 8; // types in the legend

export class EventView {
  constructor(model, place, openPaste) {
    Object.assign(this, { model, about: model.time, types: model.types, until: null, layer: null, layerName: "none", selected: null, log: false, least: 1e-6 });
    this.openPaste = openPaste;
    this.asking = new Latest(15);
    this.askingLayer = new Latest(120);
    this.frame = new Frame(this, place);
    this.kind = el("select", { id: "type", "aria-label": "Type of the events that a click adds" },
      ...this.types.map((name, n) => el("option", { value: n }, name)));
    fill(this.frame.extra, el("label", { class: "dim row" }, "A click adds", this.kind));
    this.answerCard = el("div", { class: "card", id: "answer", "aria-live": "polite" });
    this.ratesPlace = el("div", { class: "plot", id: "intensity" });
    this.lanesPlace = el("div", { class: "plot", id: "lanes", tabindex: "0", role: "group", onkeydown: (event) => this.key(event) });
    this.reading = el("span", { class: "read" });
    this.logButton = el("button", { class: "quiet small", "aria-pressed": "false", title: "Logarithmic scale", onclick: () => this.switchScale() }, "log");
    this.ratesCard = el("div", { class: "card panel" },
      el("div", { class: "panel-title" }, el("span", { class: "name" }, "Intensities"), el("span", { class: "dim small" }, this.about.unit ? `events per ${this.about.unit}` : this.about.kind === "numbers" ? "events per unit of time" : "events per second"), this.reading, this.logButton),
      this.ratesPlace,
      legend([...this.types.slice(0, NAMED).map((name, n) => [name, swatch(n)]), ...(this.types.length > NAMED ? [[`${this.types.length - NAMED} other types`, swatch(7)]] : [])]));
    this.lanesCard = el("div", { class: "card panel" },
      el("div", { class: "panel-title" }, el("span", { class: "name" }, "Events"), el("span", { class: "dim small" }, "shade: intensity of the type; click in a lane to add an event, drag to move it, right-click or Delete to remove it")),
      this.lanesPlace);
    fill(this.frame.top, this.answerCard, el("div", { class: "stack" }, this.ratesCard, this.lanesCard));
  }

  open(given, name = null) {
    this.given = given ?? { id: null, label: null, times: [], types: [], features: null };
    this.edited = this.sequence = new Events(this.given);
    this.until = null;
    this.selected = null;
    this.layer = null;
    this.answer = null;
    this.span = this.domain = this.findSpan();
    this.frame.farther.disabled = true;
    this.frame.heading.textContent = given ? name ?? String(given.id ?? "pasted sequence") : "A sequence to draw";
    fill(this.frame.chips, el("span", { class: "chip" }, `${this.given.times.length} events`),
      given?.label === null || given?.label === undefined ? null : el("span", { class: "chip" }, "label", el("b", {}, String(given.label))));
    this.frame.know(null);
    this.mount();
    this.changed();
  }

  switchScale() {
    this.log = !this.log;
    this.logButton.setAttribute("aria-pressed", String(this.log));
    this.mount();
  }

  findSpan() {
    const { times } = this.given;
    if (!times.length) {
      const now = ["numbers", "durations"].includes(this.about.kind) ? 0 : Math.floor(Date.now() / 86400000) * 86400;
      return [now, now + this.about.span];
    }
    const [start, end] = [times[0], times.at(-1)];
    const gap = (end - start) || this.about.span;
    return [start - 0.02 * gap, end + Math.max(0.12 * gap, 2.5 * this.about.span / 20)];
  }

  mount() {
    this.rates?.destroy();
    this.lanes?.destroy();
    const shared = { about: this.about, sync: "time", x: () => this.domain, ySize: 64 };
    this.rates = new Plot(this.ratesPlace, {
      ...shared, height: 260, log: this.log, y: (low, high) => (this.log ? [this.least, Math.max(1.2 * high, 10 * this.least)] : [0, (high || 1) * 1.06]),
      lines: this.types.map((_, n) => ({ colour: () => (n < NAMED ? colourOf(n, theme) : theme.c7), width: n < NAMED ? 1.3 : 0.8 })),
      under: (u, ctx, ratio) => veil(u, ctx, ratio, this.until),
      over: (u, ctx, ratio) => this.drawTicks(u, ctx, ratio),
      cursorAt: (t) => this.read(t),
    });
    const count = this.types.length;
    this.lanes = new Plot(this.lanesPlace, {
      ...shared, height: Math.max(90, LANE * count + 40), downward: true, y: () => [-0.5, count - 0.5],
      lines: [{ colour: () => "transparent" }],
      yAxis: {
        splits: () => this.types.map((_, n) => n), grid: { show: false },
        values: (_, splits) => splits.map((n) => { const name = this.types[n] ?? ""; return name.length > 9 ? `${name.slice(0, 8)}…` : name; }),
      },
      under: (u, ctx, ratio) => { this.drawHeat(u, ctx); veil(u, ctx, ratio, this.until); },
      over: (u, ctx, ratio) => this.drawEvents(u, ctx, ratio),
    });
    const held = {
      start: (mark) => { this.merge = `drag-${performance.now()}`; this.select(mark.event); },
      end: () => { this.merge = null; this.redraw(); },
      menu: (mark) => this.remove(mark.event),
      zoom: (range) => this.frame.zoom(range),
    };
    const { u: top } = this.rates;
    interact(top, {
      ...held, hit: (x, y) => (y > top.over.clientHeight - 14 ? nearest(this.marks(top, () => y), x, y, 5) : null),
      drag: (mark, x) => this.drag(mark, top.posToVal(x, "x")),
      click: (x) => this.add(top.posToVal(x, "x"), Number(this.kind.value)),
    });
    const { u } = this.lanes;
    interact(u, {
      ...held, hit: (x, y) => nearest(this.marks(u, (event) => u.valToPos(event.type, "y")), x, y, 9),
      drag: (mark, x) => this.drag(mark, u.posToVal(x, "x")),
      click: (x, y) => this.add(u.posToVal(x, "x"), Math.max(0, Math.min(count - 1, Math.round(u.posToVal(y, "y"))))),
    });
    this.lanes.set([this.span, [null, null]]);
    this.showAnswer();
  }

  marks(u, y) {
    return this.sequence.events.map((event) => ({ event, x: u.valToPos(event.t, "x"), y: y(event) }));
  }

  known(event) {
    return this.until === null || event.t <= this.until;
  }

  colour(event, n) {
    if (!this.known(event)) return theme.unknown;
    const weight = this.layer?.of(n, 0) ?? null;
    return weight === null ? colourOf(event.type, theme) : heat(weight, true, theme);
  }

  drawTicks(u, ctx, ratio) {
    const { top, height } = u.bbox;
    this.sequence.events.forEach((event, n) => {
      ctx.fillStyle = this.colour(event, n);
      ctx.fillRect(u.valToPos(event.t, "x", true) - ratio, top + height - 9 * ratio, 2 * ratio, 9 * ratio);
    });
  }

  drawHeat(u, ctx) {
    const found = this.answer?.intensity;
    if (!found || !found.times.length) return;
    const xs = found.times.map((t) => u.valToPos(t, "x", true));
    const half = Math.abs(u.valToPos(0, "y", true) - u.valToPos(0.44, "y", true));
    found.rates.forEach((rates, kind) => {
      const most = this.usualMost;
      const y = u.valToPos(kind, "y", true);
      ctx.fillStyle = colourOf(kind, theme);
      let [start, peak] = [Math.round(xs[0]), 0];
      rates.forEach((rate, n) => {
        // whole pixels, each with the highest rate in it
        peak = Math.max(peak, rate ?? 0);
        const end = Math.round(xs[Math.min(n + 1, xs.length - 1)]);
        if (end <= start) return;
        ctx.globalAlpha = 0.55 * Math.min(1, peak / most) ** 0.7;
        ctx.fillRect(start, y - half, end - start, 2 * half);
        [start, peak] = [end, 0];
      });
    });
    ctx.globalAlpha = 1;
  }

  drawEvents(u, ctx, ratio) {
    const deep = Math.min(9 * ratio, 0.4 * LANE * ratio);
    this.sequence.events.forEach((event, n) => {
      const x = u.valToPos(event.t, "x", true);
      const y = u.valToPos(event.type, "y", true);
      const chosen = event === this.selected;
      ctx.fillStyle = this.colour(event, n);
      const half = this.known(event) ? deep : 0.5 * deep;
      ctx.fillRect(x - (chosen ? 3 : 1.5) * ratio, y - half, (chosen ? 6 : 3) * ratio, 2 * half);
      if (!chosen) return;
      ctx.strokeStyle = theme.ink;
      ctx.lineWidth = ratio;
      ctx.strokeRect(x - 3.5 * ratio, y - deep - ratio, 7 * ratio, 2 * deep + 2 * ratio);
    });
  }

  read(t) {
    const found = this.answer?.intensity;
    if (t === null || !found?.times.length || t < found.times[0]) {
      this.reading.textContent = "";
      return;
    }
    let n = found.times.findIndex((x) => x >= t);
    if (n < 0) n = found.times.length - 1;
    const best = found.rates.map((rates, k) => [rates[n] ?? 0, k]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    this.reading.textContent = `${best.map(([rate, k]) => `${this.types[k]} ${number(rate, 3)}`).join(", ")} at ${time(found.times[n], this.about)}`;
  }

  describe(event) {
    return `${this.types[event.type]} at ${time(event.t, this.about)}`;
  }

  inside(t) {
    return precise(Math.min(this.domain[1], Math.max(this.domain[0], t)), this.domain);
  }

  add(t, type) {
    const at = this.inside(t);
    this.selected = this.sequence.add(at, type, `added ${this.describe({ t: at, type })}`);
    this.changed();
  }

  drag(mark, t) {
    const at = this.inside(t);
    this.selected = this.sequence.move(this.selected ?? mark.event, at, `moved to ${this.describe({ t: at, type: mark.event.type })}`, this.merge);
    this.changed();
    return { ...mark, event: this.selected };
  }

  remove(event) {
    this.sequence.remove(event, `deleted ${this.describe(event)}`);
    this.selected = null;
    this.changed();
  }

  removeChosen() {
    if (this.selected) this.remove(this.selected);
  }

  select(event) {
    this.selected = event;
    this.redraw();
  }

  key(event) {
    const { events } = this.sequence;
    const place = events.indexOf(this.selected);
    const { key } = event;
    if (key === "ArrowRight" || key === "ArrowLeft") {
      const next = events[place < 0 ? 0 : place + (key === "ArrowRight" ? 1 : -1)];
      if (next) this.select(next);
    } else if (key === "Delete" || key === "Backspace") this.removeChosen();
    else if (key === "Enter") this.add(this.until ?? this.domain[1] - 0.1 * (this.domain[1] - this.domain[0]), Number(this.kind.value));
    else if (key === "Escape") this.select(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Another stretch of time is shown; intensities are computed for it anew. */
  zoomed() {
    this.redraw();
    this.askAnswer();
  }

  redraw() {
    this.rates.draw();
    this.lanes.draw();
  }

  body() {
    return { ...this.sequence.body(), until: this.until, end: this.span[1] };
  }

  changed() {
    this.frame.showEdits();
    this.redraw();
    this.askAnswer();
    this.askLayer();
  }

  untilChanged() {
    if (!this.lanes) return;
    this.redraw();
    this.askAnswer();
    this.askLayer();
  }

  askAnswer() {
    const [start, end] = this.domain;
    const body = { ...this.body(), ...(this.domain === this.span ? {} : { start, end }) };
    this.asking.go(() => ask("events", { model: this.model.name }, body), (answer) => {
      this.answer = answer;
      this.showAnswer();
    });
  }

  askLayer() {
    if (this.layerName === "none") {
      this.askingLayer.cancel();
      this.useLayer(null);
      return;
    }
    const body = this.body();
    this.askingLayer.go(() => ask("event-layer", { model: this.model.name }, body), (answer) => this.useLayer(scaledLayer(answer)));
  }

  useLayer(layer) {
    this.layer = layer;
    this.frame.showLayer(layer, this.layerName);
    this.redraw();
  }

  setLayer(name) {
    this.layerName = name;
    this.frame.layer.value = name;
    this.askLayer();
  }

  showAnswer() {
    const { answer, about } = this;
    if (!answer) return;
    if (!answer.known) {
      this.rates.set([[], ...this.types.map(() => [])]);
      const text = this.sequence.events.length ? "Nothing happened up to this time." : "Click in a lane to add the first event, or paste a table.";
      fill(this.answerCard, el("h2", {}, "Nothing to go by"), el("p", { class: "dim" }, text));
      this.lanes.draw();
      return;
    }
    const { times, rates } = answer.intensity;
    const all = rates.flat().filter((rate) => rate > 0).sort((a, b) => a - b);
    // a few peaks must not make all others pale
    this.usualMost = all[Math.floor(0.98 * (all.length - 1))] || 1;
    this.least = Math.max(all[0] ?? 0, 1e-4 * this.usualMost);
    this.rates.set([times, ...rates]);
    this.lanes.draw();
    const { next } = answer;
    const until = this.until === null ? "" : `, known until ${time(this.until, about)}`;
    fill(this.answerCard, el("h2", {}, `Next event${until}`),
      el("p", {}, "expected ", el("b", { id: "expected" }, time(next.expected, about)), ", median ", el("b", { id: "median" }, time(next.median, about))),
      bars(this.types, next.probabilities, swatch, percent),
      answer.log_likelihood === undefined ? null : el("p", { class: "dim small" }, `surprise: ${number(-answer.log_likelihood, 3)} nats per event`));
  }

  undo() {
    this.sequence.undo();
    this.selected = null;
    this.changed();
  }

  resetEdits() {
    this.sequence.reset();
    this.selected = null;
    this.changed();
  }

  times() {
    return [...new Set(this.sequence.events.map((event) => event.t))];
  }

  paste() {
    this.openPaste();
  }

  destroy() {
    this.asking.cancel();
    this.askingLayer.cancel();
    this.rates?.destroy();
    this.lanes?.destroy();
  }
}
