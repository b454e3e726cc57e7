// The view of one series: small multiples of its channels, the model's answer, and what it knew when.

import { ask, Latest } from "./api.js";
import { el, fill } from "./dom.js";
import { Series } from "./edits.js";
import { colourOf, number, percent, swatch, time } from "./format.js";
import { Panel } from "./panel.js";
import { legend, Plot, spread, veil } from "./plot.js";
import { theme } from "./theme.js";
import { bars, Frame, scaledLayer } from "./view.js";

const FIRST = 24; // panels that are there at once
const COARSE = 32; // parts of a coarse attribution
const CLASSES = 6; // curves of classes

export class SeriesView {
  constructor(model, place, openPaste) {
    Object.assign(this, { model, about: model.time, channels: model.channels, typical: model.typical, until: null });
    Object.assign(this, { adding: false, layer: null, layerName: "none", focused: 0, explained: null, panels: [], most: FIRST });
    this.hasCurves = model.outputs !== null;
    this.openPaste = openPaste;
    this.asking = new Latest(15);
    this.askingCurve = new Latest(120);
    this.askingLayer = new Latest(120);
    this.frame = new Frame(this, place);
    this.answerCard = el("div", { class: "card", id: "answer", "aria-live": "polite" });
    this.curveCard = this.hasCurves ? null : el("div", { class: "card panel" });
    this.fixed = el("div", { class: "static" });
    this.grid = el("div", { class: "grid", id: "channels" });
    this.moreButton = el("button", { onclick: () => { this.most = Infinity; this.layout(); } });
    fill(this.frame.top, this.answerCard, this.curveCard);
    this.frame.top.classList.toggle("single", this.hasCurves);
    fill(this.frame.body, this.fixed, this.grid, el("p", { class: "more" }, this.moreButton));
  }

  /** Show a series as the server gives it; without one an empty one to draw on. */
  open(given, name = null) {
    const empty = { id: null, label: null, times: [], points: [], static: this.model.static.map(() => null) };
    this.given = given ?? empty;
    this.edited = this.series = new Series(this.given, this.channels.length);
    this.until = null;
    this.layer = null;
    this.answer = null;
    this.explained = null;
    this.overTime = null;
    this.most = FIRST;
    this.span = this.domain = this.findSpan();
    this.frame.farther.disabled = true;
    const title = given ? name ?? String(given.id ?? "pasted series") : "A series to draw";
    this.frame.heading.textContent = title;
    this.frame.know(null);
    this.showChips();
    this.showStatic();
    this.order = this.findOrder();
    this.focused = this.hasCurves ? this.outputOf(this.order[0]) >= 0 ? this.order[0] : this.order.find((c) => this.outputOf(c) >= 0) ?? this.order[0] : this.order[0];
    this.layout();
    this.changed();
  }

  findSpan() {
    const times = [...this.given.times, ...(this.given.target?.times ?? [])];
    if (!times.length) {
      const now = ["numbers", "durations"].includes(this.about.kind) ? 0 : Math.floor(Date.now() / 86400000) * 86400;
      return [now, now + this.about.span];
    }
    let [start, end] = [Math.min(...times), Math.max(...times)];
    if (this.model.task === "forecasting" && !this.given.target) end += this.model.time.horizon ?? 0;
    const gap = (end - start) || this.about.span || 1;
    return [start - 0.02 * gap, end + 0.02 * gap];
  }

  /** Channels, those with most observations first. */
  findOrder() {
    const counts = this.series.counts();
    return counts.map((_, c) => c).sort((a, b) => counts[b] - counts[a] || a - b);
  }

  outputOf(channel) {
    return this.model.outputs?.indexOf(this.channels[channel].name) ?? -1;
  }

  showChips() {
    const { model, given } = this;
    const chips = [];
    if (given.label !== null && given.label !== undefined) {
      const n = model.classes?.findIndex((one) => one === given.label) ?? -1;
      chips.push(el("span", { class: "chip", id: "label" }, n >= 0 ? el("i", { class: "dot", style: { background: swatch(n) } }) : null, `${model.label ?? "label"}`, el("b", {}, typeof given.label === "number" ? number(given.label) : String(given.label))));
    }
    chips.push(el("span", { class: "chip" }, `${given.points.length} observations at ${given.times.length} times`));
    fill(this.frame.chips, ...chips);
  }

  showStatic() {
    const { static: names } = this.model;
    this.fixed.hidden = !names.length;
    fill(this.fixed, ...names.map((name, n) => el("label", {}, name, el("input", {
      type: "number", step: "any", value: this.series.static[n] ?? "", placeholder: "unknown",
      onchange: (event) => {
        const value = event.target.value === "" ? null : Number(event.target.value);
        this.series.setStatic(n, value, `${name} is ${value === null ? "unknown" : number(value)}`);
        this.changed();
      },
    }))));
  }

  /** Panels of the channels that are shown: observed ones, and others when asked for. */
  layout() {
    for (const panel of this.panels) panel.destroy();
    const counts = this.series.counts();
    const observed = this.order.filter((c) => counts[c] > 0);
    const wanted = observed.length ? (this.most === Infinity ? this.order : observed.slice(0, this.most)) : this.order.slice(0, this.most);
    this.panels = wanted.map((c) => new Panel(this, c));
    fill(this.grid, ...this.panels.map((panel) => panel.node));
    const targets = this.given.target;
    for (const panel of this.panels) {
      const n = this.outputOf(panel.channel);
      panel.target = targets && n >= 0 ? { times: targets.times, values: targets.values[n] } : null;
      panel.mount();
    }
    const rest = this.order.length - wanted.length;
    this.moreButton.hidden = rest <= 0;
    this.moreButton.textContent = `Show ${rest} more channel${rest === 1 ? "" : "s"}${observed.length <= wanted.length ? ", not observed here" : ""}`;
    if (!this.hasCurves) this.mountCurve();
    this.spreadAnswer();
  }

  mountCurve() {
    this.curve?.destroy();
    const { classes } = this.model;
    const place = el("div", { class: "plot" });
    this.curveReading = el("span", { class: "read" });
    const names = classes ?? [this.model.label ?? "prediction"];
    this.curveOf = names.map((_, n) => n).slice(0, names.length <= CLASSES ? undefined : CLASSES);
    const entries = classes && classes.length > 1 ? this.curveOf.map((n) => [String(names[n]), swatch(n)]) : [];
    const what = classes ? "Probability given what was known by then" : "Prediction given what was known by then";
    fill(this.curveCard, el("div", { class: "panel-title" }, el("span", { class: "name" }, what), this.curveReading), place, legend(entries));
    this.curve = new Plot(place, {
      height: 150, about: this.about, sync: "time", x: () => this.domain,
      y: (low, high) => (classes ? [0, 1] : spread([low, high, this.given.label], 0.1)),
      lines: this.curveOf.map((n) => ({ colour: () => colourOf(n, theme), stepped: true, width: 1.8 })),
      under: (u, ctx, ratio) => veil(u, ctx, ratio, this.until),
      cursorAt: (t) => this.readCurve(t),
    });
    this.showCurve();
  }

  readCurve(t) {
    const over = this.overTime;
    if (t === null || !over || !over.times.length || t < over.times[0]) {
      this.curveReading.textContent = "";
      return;
    }
    let n = over.times.findIndex((x) => x > t);
    n = (n < 0 ? over.times.length : n) - 1;
    const { classes } = this.model;
    const said = classes ? this.curveOf.slice(0, 3).map((k) => `${classes[k]} ${percent(over.answers[k][n])}`).join(", ") : number(over.answers[0][n]);
    this.curveReading.textContent = `${said} at ${time(over.times[n], this.about)}`;
  }

  showCurve() {
    if (!this.curve) return;
    const over = this.overTime;
    const none = [[], ...this.curveOf.map(() => [])];
    if (!over || !over.times.length) this.curve.set(none);
    else {
      // the last answer holds until the end of the view
      const times = [...over.times, Math.max(over.times.at(-1), this.span[1])];
      this.curve.set([times, ...this.curveOf.map((k) => [...over.answers[k], over.answers[k].at(-1)])]);
    }
  }

  body() {
    return { ...this.series.body(), until: this.until, start: this.domain[0], end: this.domain[1] };
  }

  /** The series is another: ask again, for everything. */
  changed() {
    this.frame.showEdits();
    this.askAnswer();
    if (!this.hasCurves) {
      const body = { ...this.body(), until: null };
      this.askingCurve.go(() => ask("over-time", { model: this.model.name }, body), (over) => { this.overTime = over; this.showCurve(); });
    }
    this.askLayer();
  }

  untilChanged() {
    if (!this.series) return;
    this.draw();
    this.askAnswer();
    this.askLayer();
  }

  /** Another stretch of time is shown; curves are computed for it anew. */
  zoomed() {
    this.draw();
    if (this.hasCurves) this.askAnswer();
  }

  draw() {
    for (const panel of this.panels) panel.plot?.draw();
    this.curve?.draw();
  }

  askAnswer() {
    const body = this.body();
    this.asking.go(() => ask("answer", { model: this.model.name }, body), (answer) => {
      this.answer = answer;
      this.spreadAnswer();
    });
  }

  askLayer() {
    if (this.layerName === "none") {
      this.askingLayer.cancel();
      this.useLayer(null);
      return;
    }
    const at = this.until ?? this.span[1];
    const target = this.hasCurves ? Math.max(0, this.outputOf(this.focused)) : this.explained;
    const body = this.body();
    const question = (parts) => () => ask("layer", { model: this.model.name, name: this.layerName, at, target, parts }, body);
    const fine = () => this.askingLayer.go(question(null), (answer) => this.useLayer(scaledLayer(answer)));
    // many observations: first a coarse answer, which is soon there
    if (this.layerName === "attribution" && body.points.length > 3 * COARSE) {
      this.askingLayer.go(question(COARSE), (answer) => { this.useLayer(scaledLayer(answer)); fine(); });
    } else fine();
  }

  useLayer(layer) {
    this.layer = layer;
    this.frame.showLayer(layer, this.layerName);
    for (const panel of this.panels) panel.update();
  }

  setLayer(name) {
    this.layerName = name;
    this.frame.layer.value = name;
    this.askLayer();
  }

  /** Attributions of this class rather than of the one that is predicted. */
  explain(target) {
    this.explained = target;
    this.setLayer("attribution");
  }

  /** The channel whose prediction is explained. */
  focus(channel) {
    if (!this.hasCurves || this.outputOf(channel) < 0) return;
    this.focused = channel;
    for (const panel of this.panels) panel.update();
    if (this.layerName === "attribution") this.askLayer();
  }

  spreadAnswer() {
    const { answer } = this;
    if (!answer) {
      fill(this.answerCard, el("p", { class: "dim" }, "…"));
      return;
    }
    if (this.hasCurves) {
      for (const panel of this.panels) {
        const n = this.outputOf(panel.channel);
        const c = answer.curve;
        panel.curve = c && n >= 0 ? { times: c.times, middle: c.middle[n], low: c.low?.[n], high: c.high?.[n] } : null;
        panel.update();
      }
    }
    this.showAnswer(answer);
  }

  showAnswer(answer) {
    const { model, given } = this;
    const until = this.until === null ? "" : `, known until ${time(this.until, this.about)}`;
    if (!answer.known) {
      const text = this.series.rows.length ? "Nothing was observed up to this time." : "Double-click in a panel to add an observation, or paste a table.";
      fill(this.answerCard, el("h2", {}, "Nothing to go by"), el("p", { class: "dim" }, text));
      return;
    }
    if (model.classes) {
      const p = answer.probabilities;
      const of = model.classes.findIndex((one) => one === given.label);
      const surprise = of < 0 ? null : -Math.log(Math.max(1e-12, p[of]));
      fill(this.answerCard, el("h2", {}, `Prediction${until}`), bars(model.classes, p, swatch, percent, 8, (n) => this.explain(n)),
        surprise === null ? null : el("p", { class: "dim small" }, `surprise at the label: ${number(surprise, 3)} nats`));
      return;
    }
    if (model.number) {
      const truth = typeof given.label === "number" ? given.label : null;
      fill(this.answerCard, el("h2", {}, `Prediction${until}`), el("div", { class: "big" }, number(answer.value)),
        truth === null ? null : el("p", { class: "dim" }, `${model.label ?? "label"} ${number(truth)}, error ${number(answer.value - truth, 3)}`));
      return;
    }
    const rows = [el("b", {}, model.task === "forecasting" ? "Forecast" : "Values at any time"), el("span", { class: "dim" }, [
      model.band ? `line: median, band: ${model.band}` : "line: prediction", given.target ? "squares: what came" : null,
      this.channels.some((_, c) => this.outputOf(c) >= 0) ? "click a channel's name to explain its prediction" : null,
    ].filter(Boolean).join("; ") + until)];
    const others = model.outputs.filter((name) => !this.channels.some((c) => c.name === name));
    fill(this.answerCard, el("div", { class: "row" }, ...rows), this.otherOutputs(others, answer));
  }

  /** Outputs that are no channels (regression at times): a plot of their own. */
  otherOutputs(names, answer) {
    this.others?.forEach((plot) => plot.destroy());
    this.others = [];
    if (!names.length) return null;
    const box = el("div", { class: names.length > 1 ? "grid" : "" });
    queueMicrotask(() => {
      for (const name of names.slice(0, 6)) {
        const n = this.model.outputs.indexOf(name);
        const c = answer.curve;
        const place = el("div", { class: "plot" });
        box.append(el("div", { class: "panel" }, el("div", { class: "panel-title" }, el("span", { class: "name" }, name)), place));
        const truth = this.given.target?.values[n] ?? [];
        const plot = new Plot(place, {
          height: 150, about: this.about, sync: "time", x: () => this.domain,
          y: (low, high) => spread([low, high, ...truth], 0.1),
          lines: [{ colour: () => theme.accent }, { colour: () => "transparent", width: 0 }, { colour: () => "transparent", width: 0 }],
          band: [3, 2], under: (u, ctx, ratio) => veil(u, ctx, ratio, this.until),
          over: (u, ctx, ratio) => truth.length && Panel.prototype.drawTarget.call({ target: { times: this.given.target.times, values: truth } }, u, ctx, ratio),
        });
        plot.set([c.times, c.middle[n], c.low?.[n] ?? c.middle[n], c.high?.[n] ?? c.middle[n]]);
        this.others.push(plot);
      }
    });
    return box;
  }

  chose(panel) {
    for (const other of this.panels) {
      if (other === panel || other.selected === null) continue;
      other.selected = null;
      other.plot.draw();
    }
  }

  removeChosen() {
    const panel = this.panels.find((one) => one.selected !== null);
    panel?.remove(panel.selected);
  }

  undo() {
    this.series.undo();
    this.afterRestore();
  }

  resetEdits() {
    this.series.reset();
    this.afterRestore();
  }

  afterRestore() {
    for (const panel of this.panels) { panel.selected = null; panel.update(); }
    this.showStatic();
    this.changed();
  }

  times() {
    return [...new Set(this.series.rows.map((row) => row.t))];
  }

  paste() {
    this.openPaste();
  }

  destroy() {
    for (const question of [this.asking, this.askingCurve, this.askingLayer]) question.cancel();
    for (const panel of this.panels) panel.destroy();
    this.curve?.destroy();
    this.others?.forEach((plot) => plot.destroy());
  }
}
