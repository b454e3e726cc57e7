// Plots: uPlot with the page's colours, sizes that follow their place, and hooks to draw on top.

import { el } from "./dom.js";
import { compact, number, timeAxis } from "./format.js";
import { onTheme, theme } from "./theme.js";

const FONT = '11px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';

function axis(options) {
  return {
    stroke: () => theme.soft, font: FONT,
    grid: { stroke: () => theme.grid, width: 1 }, ticks: { stroke: () => theme.line, width: 1, size: 4 }, gap: 3,
    ...options,
  };
}

/** A plot of lines over x in `place`.
 *
 * options: height, about (kind and unit of times; none: x is a number), x and y: functions that give the range,
 * lines: [{colour: () => css, width, dash, stepped, points}], band: [high, low] lines with a fill between them,
 * under and over: functions (uPlot, context, pixel ratio) that draw below and above the lines, downward: y grows downward,
 * log: y is logarithmic, sync: name of the cursor that plots share, cursorAt: is told the time under it.
 */
export class Plot {
  constructor(place, options) {
    this.place = place;
    this.options = options;
    const stepped = uPlot.paths.stepped({ align: 1 });
    const series = options.lines.map((line) => ({
      stroke: line.colour, width: line.width ?? 1.5, dash: line.dash, paths: line.stepped ? stepped : line.scatter ? () => null : undefined,
      points: line.scatter ? { show: true, size: line.scatter, fill: line.colour, stroke: line.colour } : { show: false },
    }));
    this.u = new uPlot({
      width: Math.max(120, place.clientWidth), height: options.height, padding: [6, 10, 0, 0],
      legend: { show: false }, pxAlign: 1,
      cursor: {
        // without drags of its own uPlot takes every click for the end of one
        drag: { x: false, y: false, setScale: false, click: () => {} }, points: { show: false }, y: false, x: options.cursor !== false,
        sync: options.sync ? { key: options.sync, setSeries: false, scales: ["x", null] } : undefined,
        bind: { dblclick: () => null, mousedown: () => null, mouseup: () => null },
      },
      scales: {
        x: { time: false, range: () => options.x() },
        y: { range: (_, low, high) => options.y(low, high), dir: options.downward ? -1 : 1, distr: options.log ? 3 : 1 },
      },
      axes: [
        axis({ size: 26, space: 50, ...(options.about ? timeAxis(options.about) : { values: (_, s) => s.map((x) => (x === null ? "" : number(x))) }), ...options.xAxis }),
        axis({ size: options.ySize ?? 48, space: 26, values: (_, splits) => splits.map((y) => (y === null ? "" : compact(y))), ...options.yAxis }),
      ],
      series: [{}, ...series],
      bands: options.band ? [{ series: options.band, fill: () => theme.band }] : undefined,
      hooks: {
        drawAxes: [(u) => options.under && clipped(u, options.under)],
        draw: [(u) => options.over && clipped(u, options.over)],
        setCursor: [(u) => options.cursorAt?.(u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : null)],
      },
    }, options.lines.reduce((data) => [...data, []], [[]]), place);
    // for the console, and for tests
    place.uplot = this.u;
    this.watch = new ResizeObserver(() => {
      const width = place.clientWidth;
      if (width > 0 && width !== this.u.width) this.u.setSize({ width, height: options.height });
    });
    this.watch.observe(place);
    this.forget = onTheme(() => this.draw());
  }

  set(data) {
    this.u.setData(data);
  }

  draw() {
    this.u.redraw(true, true);
  }

  destroy() {
    this.watch.disconnect();
    this.forget();
    this.u.destroy();
  }
}

function clipped(u, draw) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(u, ctx, u.pxRatio ?? window.devicePixelRatio ?? 1);
  ctx.restore();
}

/** The range of some numbers with a margin; numbers that are all the same, or none, have one too. */
export function spread(values, margin = 0.08) {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) {
    if (v === null || v === undefined || !Number.isFinite(v)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (low > high) return [0, 1];
  const gap = (high - low) || Math.abs(low) * 0.1 || 1;
  return [low - margin * gap, high + margin * gap];
}

/** The part of a plot after the time until which the model knows the series, veiled, and a line there. */
export function veil(u, ctx, ratio, until) {
  if (until === null) return;
  const { left, top, width, height } = u.bbox;
  const x = Math.max(left, Math.min(left + width, u.valToPos(until, "x", true)));
  ctx.fillStyle = theme.veil;
  ctx.fillRect(x, top, left + width - x, height);
  ctx.fillStyle = theme.accent;
  ctx.fillRect(x - 0.5 * ratio, top, ratio, height);
}

export function legend(entries) {
  return el("div", { class: "legend" }, ...entries.map(([name, colour]) =>
    el("span", {}, el("i", { class: "dot", style: { background: colour } }), name)));
}
