// The page: choose a model and a series, tabs, shortcuts, and pasted tables.

import { ask, clearError, Latest, showError } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { EventView } from "./events.js";
import { List } from "./list.js";
import { Report } from "./report.js";
import { SeriesView } from "./series.js";
import { switchTheme } from "./theme.js";

const SHORTCUTS = [
  ["↑ ↓ or k j", "the series before, the next one"], ["/", "search by id"], ["[ ]", "known until the observation before, or the next one"],
  ["\\", "show everything to the model"], ["double-click", "add an observation (events: a click)"], ["a", "add mode: a click adds"],
  ["drag", "change an observation; over a stretch of time: zoom"], ["+ - 0", "zoom in, out, all of the time"], [", .", "the time before, after"], ["right-click, Delete", "delete an observation"], ["← → ↑ ↓ in a panel", "choose an observation, change it (Shift: more)"],
  ["Enter in a panel", "add an observation at the time until which the series is known"], ["u, r", "undo, reset all edits"], ["l", "next layer"],
  ["m", "series or model"], ["d", "light or dark"], ["?", "this list"],
];

const state = { models: [], model: null, view: null };
const opening = new Latest(40);

const list = new List((item) => {
  opening.go(() => ask("item", { model: state.model.name, number: item.n }), (given) => {
    state.view.open(given, item.id);
    remember(item.n);
  });
});

const report = new Report(byId("model-page"),
  (cell) => { showTab("series"); list.change({ cell }); },
  (number) => {
    showTab("series");
    ask("item", { model: state.model.name, number }).then((given) => { list.selected = number; list.render(); state.view.open(given); }).catch(showError);
  });

function remember(number) {
  const query = new URLSearchParams({ model: state.model.name, ...(number === undefined ? {} : { series: number }) });
  history.replaceState(null, "", `#${query}`);
}

function choose(name) {
  clearError();
  opening.cancel();
  state.view?.destroy();
  state.model = state.models.find((model) => model.name === name) ?? state.models[0];
  byId("model").value = state.model.name;
  document.title = `${state.model.name} – contiformer explorer`;
  const View = state.model.task === "events" ? EventView : SeriesView;
  state.view = new View(state.model, byId("view"), openPaste);
  byId("paste-columns").textContent = state.model.columns.join(", ");
  list.open(state.model);
  if (!state.model.count) state.view.open(null);
  remember();
  if (!byId("model-page").hidden) report.open(state.model);
}

function showTab(tab) {
  for (const name of ["series", "model"]) {
    byId(`${name}-page`).hidden = name !== tab;
    byId(`tab-${name}`).setAttribute("aria-selected", String(name === tab));
  }
  if (tab === "model") report.open(state.model);
  else report.close();
}

function openPaste() {
  byId("paste-error").hidden = true;
  byId("paste").showModal();
}

async function readPasted() {
  try {
    const { items } = await ask("paste", { model: state.model.name }, byId("paste-text").value);
    byId("paste").close();
    state.view.open(items[0]);
    showPasted(items);
  } catch (error) {
    byId("paste-error").textContent = error.message;
    byId("paste-error").hidden = false;
  }
}

/** A choice among several pasted series, in the head of the view. */
function showPasted(items) {
  document.getElementById("pasted")?.remove();
  if (items.length < 2) return;
  const pick = el("select", { id: "pasted", "aria-label": "Pasted series", onchange: () => state.view.open(items[Number(pick.value)]) },
    ...items.map((item, n) => el("option", { value: n }, String(item.id ?? n))));
  state.view.frame.extra.append(pick);
}

function shortcut(event) {
  const typing = event.target.closest("input:not([type=range]), textarea, select, dialog");
  if (typing || event.altKey || event.metaKey) return;
  if (event.ctrlKey && event.key !== "z") return;
  const { view } = state;
  const inSeries = !byId("series-page").hidden;
  const actions = {
    "?": () => byId("help").showModal(), d: switchTheme, m: () => showTab(inSeries ? "model" : "series"),
  };
  if (inSeries) {
    Object.assign(actions, {
      j: () => list.step(1), k: () => list.step(-1), "/": () => byId("search").focus(),
      "[": () => view.frame.jump(view.times(), -1), "]": () => view.frame.jump(view.times(), 1), "\\": () => view.frame.know(null),
      a: () => view.frame.toggleAdding(), u: () => view.undo(), z: () => event.ctrlKey && view.undo(), r: () => view.resetEdits(),
      l: () => { const names = ["none", ...state.model.layers]; view.setLayer(names[(names.indexOf(view.layerName) + 1) % names.length]); },
      "+": () => view.frame.zoomBy(0.5), "-": () => view.frame.zoomBy(2), 0: () => view.frame.zoom(null), ",": () => view.frame.shift(-0.5), ".": () => view.frame.shift(0.5),
      Delete: () => view.removeChosen(), Backspace: () => view.removeChosen(),
    });
    if (event.target === document.body || event.target.id === "view") Object.assign(actions, { ArrowDown: actions.j, ArrowUp: actions.k });
  }
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

async function start() {
  fill(byId("shortcuts"), ...SHORTCUTS.flatMap(([keys, what]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, what)]));
  byId("theme").addEventListener("click", switchTheme);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  byId("message-close").addEventListener("click", clearError);
  byId("paste-go").addEventListener("click", readPasted);
  byId("paste-cancel").addEventListener("click", () => byId("paste").close());
  byId("tab-series").addEventListener("click", () => showTab("series"));
  byId("tab-model").addEventListener("click", () => showTab("model"));
  byId("model").addEventListener("change", (event) => choose(event.target.value));
  document.addEventListener("keydown", shortcut);
  try {
    const { models } = await ask("models");
    state.models = models;
    fill(byId("model"), ...models.map((model) => el("option", { value: model.name }, `${model.name} · ${model.task}`)));
    choose(new URLSearchParams(location.hash.slice(1)).get("model") ?? models[0].name);
  } catch (error) {
    showError(error);
  }
}

start();
