function value(row, n) { return (row.cells[n].dataset.value || row.cells[n].innerText).trim(); }
function number(text) { const found = text.replace(/[,\u2009]/g, "").match(/^[-+\u2212]?\d*\.?\d+(e[-+]?\d+)?/i);
  return found ? parseFloat(found[0].replace("\u2212", "-")) : NaN; }
function sort(head) {
  const table = head.closest("table"), body = table.tBodies[0], n = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  const keyed = [...body.rows].map(row => [number(value(row, n)), value(row, n), row]);
  const numeric = keyed.some(one => !isNaN(one[0])) && !head.classList.contains("name");
  keyed.sort((a, b) => {
    if (!numeric) return (up ? 1 : -1) * a[1].localeCompare(b[1], undefined, {numeric: true});
    if (isNaN(a[0]) || isNaN(b[0])) return isNaN(a[0]) - isNaN(b[0]);
    return up ? a[0] - b[0] : b[0] - a[0]; });
  table.querySelectorAll("th").forEach(one => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  keyed.forEach(one => body.appendChild(one[2])); }
document.querySelectorAll("th").forEach(head => { head.tabIndex = 0;
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(head); }); });
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
