// Light and dark: the system's choice until the reader makes one. Plots read their colours from the style sheet.

const NAMES = ["page", "card", "ink", "soft", "faint", "line", "grid", "accent", "band", "point", "unknown", "veil", "target",
  "positive", "negative", "attend", ...Array.from({ length: 8 }, (_, n) => `c${n}`)];
const KEY = "contiformer-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

export const theme = {};

function chosen() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function apply() {
  const dark = (chosen() ?? (system.matches ? "dark" : "light")) === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) theme[name] = style.getPropertyValue(`--${name}`).trim();
  theme.dark = dark;
  for (const listener of listeners) listener();
}

export function switchTheme() {
  const next = theme.dark ? "light" : "dark";
  try { localStorage.setItem(KEY, next); } catch { /* a browser without storage forgets it */ }
  apply();
}

export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

system.addEventListener("change", apply);
apply();
