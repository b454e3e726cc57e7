// Numbers, times and colours as the page shows them.

export function number(x, digits = 4) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(2).replace("e+", "e");
  if (Number.isInteger(x)) return String(x);
  return String(Number(x.toPrecision(Math.max(digits, Math.ceil(Math.log10(size))))));
}

/** For axes: 750k rather than 750000. */
export function compact(x) {
  const size = Math.abs(x);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= 10 * unit || (size >= unit && unit > 1e3)) return `${number(x / unit, 3)}${letter}`;
  }
  return number(x, 5);
}

export const percent = (p) => (p === null || p === undefined ? "–" : p > 0.999 && p < 1 ? "> 99.9 %" : `${(100 * p).toFixed(1)} %`);

export const withUnit = (x, unit) => (unit ? `${number(x)} ${unit}` : number(x));

const two = (n) => String(n).padStart(2, "0");

/** A time as the data have it: a number with its unit, a duration, or a date in UTC. */
export function time(t, { kind, unit }, short = false) {
  if (t === null || t === undefined || !Number.isFinite(t)) return "never";
  if (kind === "durations") {
    const sign = t < 0 ? "-" : "";
    const s = Math.round(Math.abs(t));
    const clock = `${two(Math.floor(s / 3600))}:${two(Math.floor(s / 60) % 60)}`;
    return sign + (s % 60 ? `${clock}:${two(s % 60)}` : clock);
  }
  if (kind !== "numbers") {
    const date = new Date(1000 * t);
    if (Number.isNaN(date.getTime())) return number(t);
    const text = date.toISOString();
    return short ? text.slice(0, 10) : text.slice(0, 16).replace("T", " ");
  }
  const text = number(t, Math.max(4, Math.ceil(Math.log10(Math.abs(t) || 1)) + 2));
  return unit && !short ? `${text} ${unit}` : text;
}

const [MINUTE, HOUR, DAY] = [60, 3600, 86400];
const CLOCK = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR,
  4 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200];
const MONTH = 30.4375 * DAY;
const FEWER = CLOCK.map((step) => step / 1e6).filter((step) => step < 1);
const NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Ticks of dates between two times, in UTC: multiples of a step, or first days of months. */
function dateTicks(start, end, step) {
  const ticks = [];
  if (step < 28 * DAY) {
    for (let t = Math.ceil(start / step) * step; t <= end; t += step) ticks.push(t);
    return ticks;
  }
  const months = Math.round(step / MONTH);
  const first = new Date(1000 * start);
  for (let m = Math.ceil((12 * first.getUTCFullYear() + first.getUTCMonth()) / months) * months; ticks.length < 100; m += months) {
    const t = Date.UTC(Math.floor(m / 12), m % 12) / 1000;
    if (t > end) break;
    if (t >= start) ticks.push(t);
  }
  return ticks;
}

/** Text of a tick: the time of day within days, otherwise the date; the year where it is new. */
function dateText(t, n, ticks, step) {
  const date = new Date(1000 * t);
  const before = n ? new Date(1000 * ticks[n - 1]) : null;
  const day = `${date.getUTCDate()} ${NAMES[date.getUTCMonth()]}`;
  const year = !before || before.getUTCFullYear() !== date.getUTCFullYear() ? `\n${date.getUTCFullYear()}` : "";
  if (step >= 360 * DAY) return String(date.getUTCFullYear());
  if (step >= 28 * DAY) return NAMES[date.getUTCMonth()] + year;
  if (step >= DAY) return day + year;
  const clock = date.toISOString().slice(11, step < MINUTE ? 19 : 16);
  return !before || before.getUTCDate() !== date.getUTCDate() ? `${clock}\n${day}` : clock;
}

/** Options of an x axis for a kind of times. */
export function timeAxis(about) {
  if (about.kind === "numbers") return { values: (_, splits) => splits.map((t) => number(t, 6)) };
  if (about.kind === "durations") return { incrs: [...FEWER, ...CLOCK], values: (_, splits) => splits.map((t) => time(t, about, true)), space: 60 };
  return {
    space: 64, size: 38, incrs: [...FEWER, ...CLOCK, ...MONTHS.map((n) => n * MONTH)],
    splits: (u, axis, start, end, step) => dateTicks(start, end, step),
    values: (u, splits, axis, space, step) => splits.map((t, n) => dateText(t, n, splits, step)),
  };
}

const PALETTE = 7;

/** The colour of a class or type, the same everywhere; later ones go round the colour wheel. */
export function colourOf(n, theme) {
  return n < PALETTE ? theme[`c${n}`] : `hsl(${(n * 137.5) % 360} 55% ${theme.dark ? 65 : 42}%)`;
}

/** The same colour for the style of an element, which follows light and dark by itself. */
export function swatch(n) {
  return n < PALETTE ? `var(--c${n})` : `hsl(${(n * 137.5) % 360} 55% var(--other))`;
}

/** A colour for a weight from -1 to 1 (signed), or 0 to 1. */
export function heat(weight, signed, theme) {
  const share = Math.min(1, Math.abs(weight)) ** 0.6;
  const end = signed ? (weight < 0 ? theme.negative : theme.positive) : theme.attend;
  return mix(theme.unknown, end, share);
}

function mix(from, to, share) {
  const [a, b] = [channels(from), channels(to)];
  return `rgb(${a.map((x, n) => Math.round(x + (b[n] - x) * share)).join(",")})`;
}

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
