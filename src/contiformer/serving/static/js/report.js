// The page of a model: facts, learning curves, and how well it does on the data that are shown.

import { ask, showError } from "./api.js";
import { el, fill } from "./dom.js";
import { colourOf, number, percent } from "./format.js";
import { Plot, spread } from "./plot.js";
import { theme } from "./theme.js";

const NO_METRIC = new Set(["round", "seconds", "step", "steps", "learning_rate"]);

export class Report {
  constructor(place, showCell, showSeries) {
    Object.assign(this, { place, showCell, showSeries, plots: [] });
  }

  async open(model) {
    this.close();
    this.model = model;
    fill(this.place, el("p", { class: "empty wide" }, "Loading …"));
    await this.load();
  }

  async load() {
    const { model } = this;
    try {
      const found = await ask("report", { model: model.name });
      if (this.model !== model || this.place.hidden) return;
      this.show(found);
      const { review } = found;
      if (review && review.done < review.total && !review.error) this.timer = setTimeout(() => this.load(), 1500);
    } catch (error) {
      fill(this.place, el("p", { class: "empty wide error" }, error.message));
      showError(error);
    }
  }

  close() {
    clearTimeout(this.timer);
    this.model = null;
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
  }

  show(found) {
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
    this.later = [];
    const { report, review } = found;
    const pass = review && review.total && (review.done < review.total || review.error) ? ` (${review.done.toLocaleString("en")} of ${review.total.toLocaleString("en")} done${review.error ? `; stopped: ${review.error}` : ""})` : "";
    const cards = [this.facts(found), this.metrics("On the validation series (not a test)", found.validation, found.meanings)];
    if (report.metrics) cards.push(this.metrics(`On the ${report.series.toLocaleString("en")} series with answers that are shown${pass}`, report.metrics, found.meanings));
    else cards.push(el("div", { class: "card" }, el("h2", {}, "On the data that are shown"), el("p", { class: "dim" }, review ? `Nothing to compare with yet${pass}: the series have no answers, or are not done.` : "Start with --data FILE to see how the model does on it.")));
    cards.push(this.learning(found));
    if (report.reliability) cards.push(this.reliability(report.reliability));
    if (report.confusion && report.confusion.length > 1) cards.push(this.confusion(report.confusion));
    if (report.pairs) cards.push(this.pairs(report.pairs));
    if (report.residuals) cards.push(this.residuals(report.residuals));
    if (report.channels) cards.push(this.channelErrors(report.channels));
    fill(this.place, ...cards.filter(Boolean));
    for (const draw of this.later) draw();
  }

  facts(found) {
    const rows = Object.entries({ estimator: this.model.estimator, ...found.facts });
    return el("div", { class: "card" }, el("h2", {}, this.model.name), el("div", { class: "scroll" }, el("table", {}, ...rows.map(([name, value]) => el("tr", {}, el("th", {}, name), el("td", {}, String(value)))))),
      ...found.notes.map((note) => el("p", { class: "dim small" }, note)));
  }

  metrics(title, metrics, meanings) {
    const rows = Object.entries(metrics).map(([name, value]) => el("tr", {}, el("th", {}, name), el("td", { class: "number" }, number(value)), el("td", { class: "dim" }, meanings[name] ?? "")));
    return el("div", { class: "card" }, el("h2", {}, title), el("table", {}, ...rows));
  }

  /** A plot in a card, made when the card is in the page. */
  plot(options, data) {
    const place = el("div", { class: "plot" });
    this.later.push(() => {
      const plot = new Plot(place, { height: 190, ...options });
      plot.set(data);
      this.plots.push(plot);
    });
    return place;
  }

  learning(found) {
    const { history, monitor, kept } = found;
    if (!history.length) return null;
    const names = Object.keys(history[0][0]).filter((name) => !NO_METRIC.has(name) && history.some((rows) => rows.some((row) => Number.isFinite(row[name]))));
    const same = (a, b) => history.every((rows) => rows.every((row) => Math.abs(row[a]) === Math.abs(row[b])));
    const first = ["train_loss", monitor, ...names].filter((name, n, all) => names.includes(name) && !all.slice(0, n).some((other) => names.includes(other) && same(name, other)));
    const epochs = [...new Set(history.flatMap((rows) => rows.map((row) => row.round + 1)))].sort((a, b) => a - b);
    const cards = first.filter((name) => name !== "mse" && name !== "events").slice(0, 4).map((name) => {
      const data = [epochs, ...history.map((rows) => epochs.map((epoch) => rows.find((row) => row.round + 1 === epoch)?.[name] ?? null))];
      const options = {
        height: 140, xAxis: { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, x: () => (epochs.length > 1 ? spread(epochs, 0.03) : [epochs[0] - 0.5, epochs[0] + 0.5]), y: (low, high) => spread([low, high]),
        lines: history.map((_, n) => ({ colour: () => colourOf(n, theme) })),
        over: (u, ctx, ratio) => history.forEach((rows, n) => {
          const row = rows.find((one) => one.round + 1 === kept[n]);
          if (!row) return;
          ctx.beginPath();
          ctx.arc(u.valToPos(kept[n], "x", true), u.valToPos(row[name], "y", true), 3.5 * ratio, 0, 7);
          ctx.fillStyle = colourOf(n, theme);
          ctx.fill();
        }),
      };
      return el("div", { class: "panel" }, el("div", { class: "panel-title" }, el("span", { class: "name" }, name === "train_loss" ? "training loss" : `validation ${name}`)), this.plot(options, data));
    });
    return el("div", { class: "card wide" }, el("h2", {}, "Learning curves"), el("p", { class: "dim small" }, `by epoch${kept.length ? "; the dot is the epoch that was kept" : ""}${history.length > 1 ? "; a colour for each member" : ""}`), el("div", { class: "grid" }, ...cards));
  }

  reliability(found) {
    const second = found.second ? String(this.model.classes[1]) : null;
    const options = {
      height: 230, x: () => [-0.03, 1.03], y: () => [-0.04, 1.04], cursor: false, lines: [{ colour: () => theme.accent }],
      under: (u, ctx, ratio) => diagonal(u, ctx, ratio, 0, 1),
      over: (u, ctx, ratio) => found.confidence.forEach((x, n) => {
        const at = u.valToPos(x, "x", true);
        ctx.fillStyle = theme.band;
        ctx.fillRect(at - 1.5 * ratio, u.valToPos(found.high[n], "y", true), 3 * ratio, u.valToPos(found.low[n], "y", true) - u.valToPos(found.high[n], "y", true));
        ctx.beginPath();
        ctx.arc(at, u.valToPos(found.share[n], "y", true), Math.min(7, 2.5 + Math.sqrt(found.series[n]) / 4) * ratio, 0, 7);
        ctx.fillStyle = theme.accent;
        ctx.fill();
      }),
    };
    const what = second === null ? "x: probability of the answer; y: how often it was right" : `x: probability of ${second}; y: how often it occurred`;
    return el("div", { class: "card" }, el("h2", {}, "Reliability"), el("p", { class: "dim small" }, `${what}; bars are 95 % intervals`), this.plot(options, [found.confidence, found.share]));
  }

  confusion(counts) {
    const names = (this.model.classes ?? this.model.types).map(String);
    const clickable = this.model.task === "classification";
    const head = el("tr", {}, el("th", {}, "actual ↓ predicted →"), ...names.map((name) => el("th", { title: name }, name)));
    const rows = counts.map((row, i) => {
      const total = Math.max(1, row.reduce((a, b) => a + b, 0));
      return el("tr", {}, el("th", { title: names[i] }, names[i]), ...row.map((count, j) => {
        const share = count / total;
        const strength = Math.round(100 * share * (theme.dark ? 0.6 : 0.5));
        return el("td", {}, el("button", {
          style: { background: `color-mix(in srgb, ${i === j ? theme.accent : theme.c1} ${strength}%, transparent)` },
          title: `${percent(share)} of ${names[i]}`, disabled: !clickable || !count, "aria-label": `true ${names[i]}, predicted ${names[j]}: ${count}`,
          onclick: () => this.showCell({ true: i, predicted: j, names: [names[i], names[j]] }),
        }, String(count)));
      }));
    });
    return el("div", { class: "card" }, el("h2", {}, clickable ? "Confusion matrix" : "Types of the next event"), el("p", { class: "dim small" }, clickable ? "Click a cell to list its series." : "Each event as it was predicted from those before it."), el("div", { class: "scroll" }, el("table", { class: "confusion" }, head, ...rows)));
  }

  pairs(found) {
    const events = this.model.task === "events";
    const both = [...found.true, ...found.said].filter((x) => x !== null);
    const [low, high] = spread(both, 0.04);
    const order = found.true.map((_, n) => n).sort((a, b) => found.true[a] - found.true[b]);
    const options = {
      height: 260, x: () => [low, high], y: () => [low, high], cursor: false,
      lines: [{ colour: () => theme.accent, scatter: events ? 3 : 5, width: 0 }],
      under: (u, ctx, ratio) => diagonal(u, ctx, ratio, low, high),
    };
    const place = this.plot(options, [order.map((n) => found.true[n]), order.map((n) => found.said[n])]);
    if (found.series) {
      place.addEventListener("click", (event) => {
        const plot = this.plots.find((one) => one.place === place);
        const box = plot.u.over.getBoundingClientRect();
        let [best, least] = [null, 144];
        found.true.forEach((x, n) => {
          const distance = (plot.u.valToPos(x, "x") - event.clientX + box.left) ** 2 + (plot.u.valToPos(found.said[n], "y") - event.clientY + box.top) ** 2;
          if (distance < least) [best, least] = [n, distance];
        });
        if (best !== null) this.showSeries(found.series[best]);
      });
    }
    return el("div", { class: "card" }, el("h2", {}, events ? "Expected against true waits" : "Predicted against observed"),
      el("p", { class: "dim small" }, events ? "x: true time to the next event; y: expected" : "x: observed; y: predicted. Click a point to see its series."), place);
  }

  residuals(found) {
    const high = Math.max(...found.law, ...found.found);
    const options = {
      height: 260, x: () => [0, Math.max(...found.law)], y: () => [0, high], cursor: false,
      lines: [{ colour: () => theme.accent, width: 2 }], under: (u, ctx, ratio) => diagonal(u, ctx, ratio, 0, high),
    };
    return el("div", { class: "card" }, el("h2", {}, "Time rescaling"), el("p", { class: "dim small" }, "Quantiles of the integrated intensity between events (y) against the unit exponential law (x): on the diagonal where the model is right."), this.plot(options, [found.law, found.found]));
  }

  channelErrors(found) {
    const units = new Map(this.model.channels.map((one) => [one.name, one.unit]));
    const names = this.model.outputs;
    const order = names.map((_, n) => n).filter((n) => found.values[n] > 0).sort((a, b) => found.scaled_rmse[b] - found.scaled_rmse[a]);
    const most = Math.max(...order.map((n) => found.scaled_rmse[n]), 1e-12);
    const head = el("tr", {}, ...["channel", "RMSE", "MAE", "RMSE / std", found.coverage90 ? "in 90 %" : null, "values"].filter(Boolean).map((text, n) => el("th", { class: n ? "number" : "" }, text)));
    const rows = order.map((n) => el("tr", {},
      el("td", {}, names[n], units.get(names[n]) ? el("span", { class: "dim" }, ` ${units.get(names[n])}`) : null),
      el("td", { class: "number" }, number(found.rmse[n], 3)), el("td", { class: "number" }, number(found.mae[n], 3)),
      el("td", { class: "number", style: { background: `linear-gradient(90deg, ${theme.band} ${100 * found.scaled_rmse[n] / most}%, transparent 0)` } }, number(found.scaled_rmse[n], 3)),
      found.coverage90 ? el("td", { class: "number" }, percent(found.coverage90[n])) : null, el("td", { class: "number" }, String(found.values[n]))));
    return el("div", { class: "card wide" }, el("h2", {}, "Errors by channel"), el("p", { class: "dim small" }, this.model.task === "forecasting" ? "Of the last steps of each series." : "Of values that are hidden from the model, or of the targets."), el("div", { class: "scroll" }, el("table", {}, head, ...rows)));
  }
}

function diagonal(u, ctx, ratio, low, high) {
  ctx.beginPath();
  ctx.moveTo(u.valToPos(low, "x", true), u.valToPos(low, "y", true));
  ctx.lineTo(u.valToPos(high, "x", true), u.valToPos(high, "y", true));
  ctx.setLineDash([5 * ratio, 4 * ratio]);
  ctx.strokeStyle = theme.faint;
  ctx.lineWidth = ratio;
  ctx.stroke();
  ctx.setLineDash([]);
}
