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
  return number(x);
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
  return unit && !short ? `${number(t)} ${unit}` : number(t);
}

const DURATIONS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000];

/** Options of an x axis for a kind of times. */
export function timeAxis(about) {
  if (about.kind === "numbers") return { values: (_, splits) => splits.map((t) => number(t, 6)) };
  if (about.kind === "durations") return { incrs: DURATIONS, values: (_, splits) => splits.map((t) => time(t, about, true)), space: 60 };
  return { space: 70 };
}

const PALETTE = 7;

/** The colour of a class or type, the same everywhere; later ones go round the colour wheel. */
export function colourOf(n, theme) {
  return n < PALETTE ? theme[`c${n}`] : `hsl(${(n * 137.5) % 360} 55% ${theme.dark ? 65 : 42}%)`;
}

/** A colour for a weight from -1 to 1 (signed), or 0 to 1. */
export function heat(weight, signed, theme) {
  const share = Math.min(1, Math.abs(weight)) ** 0.7;
  const end = signed ? (weight < 0 ? theme.negative : theme.positive) : theme.attend;
  return mix(theme.unknown, end, share);
}

function mix(from, to, share) {
  const [a, b] = [channels(from), channels(to)];
  return `rgb(${a.map((x, n) => Math.round(x + (b[n] - x) * share)).join(",")})`;
}

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
