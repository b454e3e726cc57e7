// The frame of a view, the same for series and for events: head, tools, "known until", edits and layers.

import { el, fill } from "./dom.js";
import { time } from "./format.js";

const STEPS = 1000;
export const LAYERS = { none: "no layer", attribution: "attribution (occlusion)", attention: "attention (last layer)" };

export class Frame {
  /** `owner` has model, about, edited (see edits.js), span (all of the time), domain (what is shown of it), until and what is called below. */
  constructor(owner, place) {
    this.owner = owner;
    this.heading = el("h1");
    this.chips = el("span", { class: "row" });
    this.undo = el("button", { title: "Undo (u)", onclick: () => owner.undo() }, "Undo");
    this.reset = el("button", { title: "Reset all edits (r)", id: "reset", onclick: () => owner.resetEdits() }, "Reset");
    this.adding = el("button", { title: "A click adds (a)", id: "add-mode", "aria-pressed": "false", onclick: () => this.toggleAdding() }, "Add mode");
    this.layer = el("select", { id: "layer", "aria-label": "Layer", onchange: () => owner.setLayer(this.layer.value) },
      ...["none", ...owner.model.layers].map((name) => el("option", { value: name }, LAYERS[name])));
    this.closer = el("button", { title: "Zoom in (+), or drag over a stretch of time", id: "zoom-in", onclick: () => this.zoomBy(0.5) }, "+");
    this.farther = el("button", { title: "Zoom out (-); 0: all of the time", id: "zoom-out", onclick: () => this.zoomBy(2) }, "−");
    this.extra = el("span", { class: "row" });
    this.scale = el("div", { class: "legend", id: "layer-scale", hidden: true });
    this.slider = el("input", { type: "range", min: 0, max: STEPS, value: STEPS, id: "until", "aria-label": "Known until",
      oninput: () => this.slid() });
    this.shown = el("output", { for: "until" });
    this.all = el("button", { title: "Show everything to the model (\\)", onclick: () => this.know(null) }, "all");
    this.edits = el("details", { class: "edits", id: "edits", open: true, hidden: true }, el("summary"), el("ol"));
    this.top = el("div", { class: "top" });
    this.body = el("div");
    const isEvents = owner.model.task === "events";
    fill(place,
      el("div", { class: "head" }, this.heading, this.chips,
        el("div", { class: "tools" }, this.extra, isEvents ? null : this.adding, this.layer, el("span", { class: "row", role: "group", "aria-label": "Zoom in time" }, this.farther, this.closer), this.undo, this.reset,
          el("button", { onclick: () => owner.paste(), id: "paste-open" }, "Paste CSV"))),
      el("div", { class: "knob" }, el("label", { for: "until", class: "dim", title: "Only what happened up to this time is shown to the model" }, "Known until"), this.slider, this.shown, this.all),
      this.scale, this.top, this.edits, this.body);
  }

  toggleAdding() {
    this.owner.adding = !this.owner.adding;
    this.adding.setAttribute("aria-pressed", String(this.owner.adding));
  }

  /** Show a stretch of the time, or all of it. */
  zoom(range) {
    const { owner } = this;
    const [start, end] = owner.span;
    const least = (end - start) / 1e4;
    const [a, b] = range ?? owner.span;
    const width = Math.min(end - start, Math.max(least, b - a));
    const left = Math.max(start, Math.min(end - width, (a + b - width) / 2));
    owner.domain = width < end - start ? [left, left + width] : owner.span;
    this.farther.disabled = owner.domain === owner.span;
    owner.zoomed();
  }

  /** Show less or more, around the time until which the series is known if that is in sight. */
  zoomBy(factor) {
    const { domain: [a, b], until } = this.owner;
    const middle = until !== null && until > a && until < b ? until : (a + b) / 2;
    this.zoom([middle - (middle - a) * factor, middle + (b - middle) * factor]);
  }

  /** Show what is before or after. */
  shift(by) {
    const { domain: [a, b] } = this.owner;
    this.zoom([a + by * (b - a), b + by * (b - a)]);
  }

  slid() {
    const { span } = this.owner;
    const value = Number(this.slider.value);
    this.owner.until = value >= STEPS ? null : span[0] + (span[1] - span[0]) * value / STEPS;
    this.showUntil();
    this.owner.untilChanged();
  }

  know(until) {
    const { span } = this.owner;
    this.owner.until = until;
    this.slider.value = until === null ? STEPS : Math.round(STEPS * (until - span[0]) / (span[1] - span[0]));
    this.showUntil();
    this.owner.untilChanged();
  }

  /** To the next or previous time at which something was observed. */
  jump(times, by) {
    const now = this.owner.until ?? Infinity;
    const next = by > 0 ? times.find((t) => t > now) : times.findLast((t) => t < now);
    this.know(next === undefined ? (by > 0 ? null : this.owner.until) : next);
  }

  showUntil() {
    const { until, about } = this.owner;
    const text = until === null ? "everything" : time(until, about);
    this.shown.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    this.all.disabled = until === null;
  }

  showEdits() {
    const { edits } = this.owner.edited;
    this.undo.disabled = this.reset.disabled = !edits.length;
    this.edits.hidden = !edits.length;
    this.edits.querySelector("summary").textContent = edits.length === 1 ? "1 edit" : `${edits.length} edits`;
    fill(this.edits.querySelector("ol"), ...edits.map((edit) => el("li", {}, edit.text)));
  }

  showLayer(layer, name) {
    this.scale.hidden = !layer;
    if (!layer) return;
    const ends = layer.signed ? ["lowers", "raises"] : ["0", "most"];
    fill(this.scale, el("span", {}, name === "attention" ? "Attention" : "Attribution", ":"), el("span", {}, ends[0], el("i", { class: `scale ${layer.signed ? "signed" : "plain"}` }), ends[1]),
      el("span", {}, layer.unit), ...layer.notes.map((note) => el("span", {}, note.split(": ").at(-1))));
  }
}

/** Weights of observations, scaled to their largest: `of(row, channel)` from -1 to 1. */
export function scaledLayer(answer) {
  const flat = answer.weights.flat().filter((w) => w !== null).map(Math.abs).sort((a, b) => a - b);
  // a few extremes must not make all others pale
  const most = flat.length ? Math.max(flat[Math.floor(0.95 * (flat.length - 1))], 1e-12) : 1;
  return {
    ...answer,
    /** The sum over some rows of a channel, as it is; null where weights belong to times. */
    total(rows, channel) {
      return answer.weights[0]?.length > 1 ? rows.reduce((sum, row) => sum + (answer.weights[row]?.[channel] ?? 0), 0) : null;
    },
    of(row, channel) {
      const weights = answer.weights[row];
      if (!weights) return null;
      const w = weights.length === 1 ? weights[0] : weights[channel];
      return w === null || w === undefined ? null : Math.max(-1, Math.min(1, w / most));
    },
  };
}

/** Bars of shares, of which the `most` largest are shown; with `pick` a name can be clicked. */
export function bars(names, shares, colour, percentText, most = 8, pick = null) {
  const order = shares.map((share, n) => [share, n]).sort((a, b) => b[0] - a[0]);
  const kept = order.slice(0, most).map(([, n]) => n);
  if (names.length <= most) kept.sort((a, b) => a - b);
  const cells = kept.flatMap((n) => [
    el(pick ? "button" : "span", {
      class: n === order[0][1] ? "name answer" : "name", title: pick ? `Explain ${names[n]}` : String(names[n]), onclick: pick ? () => pick(n) : null,
    }, String(names[n])),
    el("span", { class: "track" }, el("span", { class: "fill", style: { display: "block", width: `${100 * shares[n]}%`, background: colour(n) } })),
    el("span", { class: n === order[0][1] ? "value answer" : "value" }, percentText(shares[n])),
  ]);
  const rest = order.length - kept.length;
  return el("div", { class: "bars" }, ...cells, rest > 0 ? el("span", { class: "dim small" }, `${rest} others`) : null);
}
