// The list of series: only the rows in sight exist, and pages are asked for when they come into sight.

import { ask, Latest, showError } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { number, percent, swatch } from "./format.js";

const ROW = 44;
const PAGE = 100;

export class List {
  constructor(choose) {
    this.choose = choose;
    this.place = byId("list");
    this.sizer = el("div", { class: "sizer" });
    this.place.append(this.sizer);
    this.latest = new Latest(120);
    this.state = { search: "", sort: "order", descending: false, cell: null };
    this.selected = null;
    this.place.addEventListener("scroll", () => this.render());
    this.place.addEventListener("keydown", (event) => {
      if (!["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      if (event.key === "Home" || event.key === "End") this.go(event.key === "Home" ? 0 : this.total - 1);
      else this.step(event.key === "ArrowDown" ? 1 : -1);
    });
    byId("search").addEventListener("input", (event) => this.change({ search: event.target.value }));
    byId("sort").addEventListener("change", (event) => {
      const sort = event.target.value;
      this.change({ sort, descending: sort === "surprise" || sort === "length" });
    });
    byId("direction").addEventListener("click", () => this.change({ descending: !this.state.descending }));
    byId("cell").querySelector("button").addEventListener("click", () => this.change({ cell: null }));
  }

  open(model) {
    this.model = model;
    this.pages = new Map();
    this.total = 0;
    this.selected = null;
    clearTimeout(this.timer);
    byId("search").value = "";
    byId("sort").value = "order";
    this.state = { search: "", sort: "order", descending: false, cell: null };
    byId("sidebar").hidden = model.count === null;
    byId("series-page").classList.toggle("alone", model.count === null);
    this.show();
    if (model.count !== null) this.reload(true);
  }

  change(state) {
    Object.assign(this.state, state);
    this.show();
    this.place.scrollTop = 0;
    this.latest.go(() => this.load(0), (page) => this.use(0, page, true, false));
  }

  show() {
    const { descending, cell } = this.state;
    byId("direction").textContent = descending ? "↓" : "↑";
    byId("direction").setAttribute("aria-pressed", String(descending));
    byId("cell").hidden = cell === null;
    if (cell) byId("cell").querySelector("span").textContent = `true ${cell.names[0]}, predicted ${cell.names[1]}`;
  }

  load(page) {
    const { search, sort, descending, cell } = this.state;
    return ask("series", {
      model: this.model.name, search, sort, descending, offset: page * PAGE, limit: PAGE,
      true: cell?.true, predicted: cell?.predicted,
    });
  }

  reload(first = false) {
    this.load(0).then((page) => this.use(0, page, true, first)).catch(showError);
  }

  use(page, answer, anew, first) {
    if (anew) this.pages = new Map();
    this.pages.set(page, answer.items);
    this.total = answer.total;
    this.sizer.style.height = `${this.total * ROW}px`;
    this.progress(answer.review);
    byId("count").textContent = `${this.total.toLocaleString("en")} of ${this.model.count.toLocaleString("en")} ${this.model.task === "events" ? "sequences" : "series"}${answer.review ? `; bold: ${answer.review.meaning}` : ""}`;
    this.render();
    if (first && this.total) this.go(0);
  }

  /** Progress of the pass that computes surprise; the list is asked for again as it goes on. */
  progress(review) {
    clearTimeout(this.timer);
    const box = byId("review");
    box.hidden = !review || review.done >= review.total && !review.error;
    if (!review) return;
    byId("sort").title = `Surprise: ${review.meaning}, of the first ${this.model.reviewed.toLocaleString("en")}`;
    box.querySelector("progress").max = review.total;
    box.querySelector("progress").value = review.done;
    box.querySelector("span").textContent = review.error ? `stopped: ${review.error}` : `surprise ${review.done} / ${review.total}`;
    if (review.done < review.total && !review.error) this.timer = setTimeout(() => this.refresh(), 700);
  }

  refresh() {
    const pages = [...this.pages.keys()];
    Promise.all(pages.slice(-3).map((page) => this.load(page).then((answer) => this.use(page, answer, false, false)))).catch(showError);
  }

  item(n) {
    return this.pages.get(Math.floor(n / PAGE))?.[n % PAGE];
  }

  render() {
    const first = Math.max(0, Math.floor(this.place.scrollTop / ROW) - 4);
    const last = Math.min(this.total, first + Math.ceil((this.place.clientHeight || 400) / ROW) + 8);
    const rows = [];
    for (let n = first; n < last; n += 1) {
      const item = this.item(n);
      if (item) rows.push(this.row(item, n));
      else this.need(Math.floor(n / PAGE));
    }
    fill(this.sizer, ...rows);
    if (!this.total) fill(this.sizer, el("p", { class: "empty" }, "No series has this in its id."));
    const chosen = this.sizer.querySelector('[aria-selected="true"]');
    if (chosen) this.place.setAttribute("aria-activedescendant", chosen.id);
  }

  need(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, []);
    this.load(page).then((answer) => this.use(page, answer, false, false)).catch(showError);
  }

  row(item, n) {
    const { model } = this;
    const label = item.label === null || item.label === undefined ? null : String(item.label);
    const of = model.classes ? model.classes.findIndex((one) => String(one) === label) : -1;
    const sub = [label === null ? null : model.number ? `${model.label ?? "label"} ${number(item.label)}` : label, `${item.length} ${model.task === "events" ? "events" : "times"}`];
    const { answer } = item;
    let said = "";
    if (answer && "class" in answer) said = `${model.classes[answer.class]} ${percent(answer.probability)}`;
    else if (answer && "value" in answer) said = number(answer.value);
    return el("div", {
      class: "item", role: "option", id: `series-${item.n}`, "aria-selected": String(item.n === this.selected),
      style: { top: `${n * ROW}px` }, onclick: () => this.go(n),
    },
    el("span", { class: "id" }, item.id),
    el("span", { class: "right" }, item.surprise === null ? "" : el("b", { title: "surprise" }, number(item.surprise, 3))),
    el("span", { class: "sub" }, of >= 0 ? el("i", { class: "dot", style: { background: swatch(of), marginRight: "5px" } }) : null, sub.filter(Boolean).join(" · ")),
    el("span", { class: "right" }, said));
  }

  step(by) {
    const all = [...this.pages.entries()];
    let place = -1;
    for (const [page, items] of all) {
      const n = items.findIndex((item) => item.n === this.selected);
      if (n >= 0) place = page * PAGE + n;
    }
    this.go(place + by);
  }

  go(n) {
    if (n < 0 || n >= this.total) return;
    const top = n * ROW;
    if (top < this.place.scrollTop) this.place.scrollTop = top;
    else if (top + ROW > this.place.scrollTop + this.place.clientHeight) this.place.scrollTop = top + ROW - this.place.clientHeight;
    const item = this.item(n);
    if (!item) {
      this.need(Math.floor(n / PAGE));
      return;
    }
    this.selected = item.n;
    this.render();
    this.choose(item);
  }
}
