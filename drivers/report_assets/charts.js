"use strict";
// Charts as SVG. Every text is set as text, so nothing that a model wrote is read as markup.

const SVG = document.getElementById("shape").namespaceURI;
const COLORS = ["#1f77b4", "#d08a00", "#2a9d5c", "#a45ac8", "#c0392b", "#5a8f9b", "#8c6d31", "#e377c2"];

function element(name, attributes, ...children) {
  const node = document.createElement(name);
  return filled(node, attributes, children);
}

function shape(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  return filled(node, attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function shown(value) {
  if (value === null || value === undefined) return "no data";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
}

// A line chart of series {name, color, points: [[x, y]], dash, dots}.
function lineChart(series, options) {
  const drawn = series.filter((one) => one.points.length > 0);
  if (drawn.length === 0) return element("p", { class: "soft" }, "No data.");
  const width = 760, height = 250, left = 48, right = 12, top = 10, bottom = 26;
  const xs = drawn.flatMap((one) => one.points.map((p) => p[0]));
  const ys = drawn.flatMap((one) => one.points.map((p) => p[1]));
  const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1);
  const y0 = options.low ?? Math.min(0, ...ys);
  const y1 = options.high ?? (Math.max(...ys) * 1.05 || 1);
  const x = (v) => left + ((v - x0) / (x1 - x0)) * (width - left - right);
  const y = (v) => height - bottom - ((v - y0) / (y1 - y0 || 1)) * (height - top - bottom);
  const root = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  for (let tick = 0; tick <= 4; tick += 1) {
    const value = y0 + ((y1 - y0) * tick) / 4;
    root.append(shape("path", { class: "axis", d: `M${left} ${y(value)}H${width - right}` }));
    root.append(shape("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, shown(value)));
    const at = Math.round(x0 + ((x1 - x0) * tick) / 4);
    root.append(shape("text", { x: x(at), y: height - 8, "text-anchor": "middle" }, String(at)));
  }
  for (const step of options.marks || []) {
    root.append(shape("path", { class: "veto", d: `M${x(step)} ${top}V${height - bottom}` },
      shape("title", {}, `a [Resist] criterion was put in at step ${step}`)));
  }
  for (const one of drawn) {
    const path = one.points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
    if (!one.dots) root.append(shape("path", { class: "series", d: path, stroke: one.color, "stroke-dasharray": one.dash }));
    for (const p of one.points) {
      const title = shape("title", {}, `${one.name}, step ${p[0]}: ${shown(p[1])}`);
      const radius = one.dots ? 4 : 6;
      root.append(shape("circle", { cx: x(p[0]), cy: y(p[1]), r: radius, fill: one.dots ? one.color : "transparent" }, title));
    }
  }
  return element("figure", { style: "margin:0" }, root, legend(drawn));
}

function legend(series) {
  const items = series.map((one) => {
    const line = element("i", {});
    line.style.borderTopColor = one.color;
    line.style.borderTopStyle = one.dots ? "dotted" : one.dash ? "dashed" : "solid";
    return element("span", {}, line, one.name);
  });
  return element("div", { class: "legend soft" }, items);
}

// Mean score by criterion and step: dark is full score. ``choose`` gets the clicked criterion.
function heatMap(criteria, choose) {
  const steps = [...new Set(criteria.flatMap((c) => c.cells.map((cell) => cell[0])))].sort((a, b) => a - b);
  const left = 300, width = 1000, line = 20, step = (width - left) / Math.max(steps.length, 1);
  const place = new Map(steps.map((s, i) => [s, left + i * step]));
  const height = criteria.length * line + 24;
  const root = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Mean score by criterion and step", style: "min-width: 640px" });
  criteria.forEach((criterion, number) => {
    const top = number * line;
    const name = `${criterion.tag} ${criterion.text}`;
    const label = name.length > 46 ? `${name.slice(0, 45)}…` : name;
    const row = shape("g", { class: "row", tabindex: "0", role: "button", "aria-label": name });
    row.append(shape("rect", { x: 0, y: top, width, height: line, fill: "transparent" }));
    row.append(shape("text", { x: 0, y: top + 14, class: criterion.tag === "[Resist]" ? "resist" : null }, label));
    for (const [at, mean] of criterion.cells) {
      const cell = shape("rect", { x: place.get(at), y: top + 1, width: Math.max(step - 0.6, 0.8), height: line - 2, fill: heat(mean) });
      cell.append(shape("title", {}, `${name}\nstep ${at}: mean ${shown(mean)}`));
      row.append(cell);
    }
    const pick = () => {
      root.querySelectorAll(".row").forEach((other) => other.classList.toggle("on", other === row));
      choose(criterion);
    };
    row.addEventListener("click", pick);
    row.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } });
    root.append(row);
  });
  for (const at of [steps[0], steps[steps.length - 1]]) {
    if (at !== undefined) root.append(shape("text", { x: place.get(at), y: height - 8 }, `step ${at}`));
  }
  return element("div", { class: "wide" }, root);
}

function heat(mean) {
  return `hsl(${20 + 190 * mean} 65% ${82 - 42 * mean}%)`;
}
