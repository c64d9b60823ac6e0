"use strict";
// The report page. Its data stands in the page as JSON; texts are only ever set as text.

const DATA = JSON.parse(document.getElementById("data").textContent);
const state = { tab: "overview", run: 0, rubric: 0 };

const TABS = {
  overview: ["Overview", overview],
  criteria: ["Criteria", criteriaTab],
  rubrics: ["Rubrics", rubricsTab],
  refused: ["Refused edits", refusedTab],
  cost: ["Time and cost", costTab],
};

function draw() {
  const tabs = Object.entries(TABS).map(([key, [name]]) => element("button", {
    role: "tab", id: `tab-${key}`, "aria-selected": String(state.tab === key),
    onclick: () => { state.tab = key; draw(); },
  }, name));
  const main = document.querySelector("main");
  main.replaceChildren(element("nav", { role: "tablist" }, tabs));
  if (DATA.runs.length > 1 && !["overview", "cost"].includes(state.tab)) main.append(runPicker());
  main.append(element("section", { role: "tabpanel", "aria-labelledby": `tab-${state.tab}` }, TABS[state.tab][1]()));
}

function runPicker() {
  const picker = element("select", { id: "run", "aria-label": "run" },
    DATA.runs.map((run, i) => element("option", { value: i }, label(run))));
  picker.value = state.run;
  picker.addEventListener("change", () => { state.run = Number(picker.value); state.rubric = 0; draw(); });
  return element("p", { class: "controls" }, "Run", picker);
}

function label(run) { return `${run.name} (${run.method})`; }

function table(heads, rows) {
  const cell = (name) => (value) => element(name, typeof value === "number" ? { class: "number" } : {},
    value instanceof Node ? value : shown(value));
  return element("div", { class: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, heads.map((h) => element("th", {}, h)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell("td")))))));
}

// ---------------------------------------------------------------- overview
function overview() {
  const colors = (i, name) => COLORS[(DATA.runs.length > 1 ? i : name === "gold" ? 1 : 0) % COLORS.length];
  const series = DATA.runs.flatMap((run, i) => ["reward", "gold"].flatMap((name) => [
    { name: `${label(run)}: ${name}`, color: colors(i, name), points: run.curves[name], dash: name === "gold" && DATA.runs.length > 1 ? "6 4" : null },
    { name: `${label(run)}: ${name}, held out`, color: colors(i, name), points: run.curves[`${name}_held_out`], dots: true },
  ]));
  const vetoed = DATA.runs.map((run, i) => ({ name: `${label(run)}: vetoed`, color: COLORS[i], points: run.curves.vetoed }));
  const marks = DATA.runs.length === 1 ? DATA.runs[0].vetoes : [];
  return [
    element("h2", {}, "Reward (trained on) and gold (never trained on)"),
    lineChart(series, { low: 0, high: 1, label: "Reward and gold by step", marks }),
    element("h2", {}, "Share of graded rollouts that a [Resist] criterion vetoed"),
    lineChart(vetoed, { low: 0, high: 1, label: "Vetoed share by step", marks }),
    element("h2", {}, "Numbers"),
    table(["", ...DATA.runs.map(label)], numberRows()),
  ];
}

function numberRows() {
  const names = [...new Set(DATA.runs.flatMap((run) => Object.keys(run.numbers)))];
  return names.map((name) => [name, ...DATA.runs.map((run) => run.numbers[name] ?? null)]);
}

// ---------------------------------------------------------------- criteria
function criteriaTab() {
  const run = DATA.runs[state.run];
  if (run.criteria.length === 0) return [element("p", { class: "soft" }, "No verdicts.")];
  const chosen = element("div", { id: "criterion", "aria-live": "polite" });
  const choose = (criterion) => chosen.replaceChildren(element("div", { class: "panel" },
    element("strong", { class: criterion.tag === "[Resist]" ? "resist" : null }, `${criterion.tag} ${criterion.text}`),
    definitions([["scores", criterion.scores], ["vetoes", criterion.vetoes], ["without a score", criterion.failed],
      ["first and last mean", `${shown(criterion.cells[0]?.[1])} and ${shown(criterion.cells.at(-1)?.[1])}`]])));
  const left = run.num_criteria - run.criteria.length;
  const note = left > 0 ? `[Resist] criteria first, then the most scored; ${left} more are not shown.` : "Dark is full score. Choose a line.";
  return [element("h2", {}, "Mean score by criterion and step"), element("p", { class: "soft" }, note), heatMap(run.criteria, choose), chosen];
}

function definitions(pairs) {
  return element("dl", {}, pairs.flatMap(([name, value]) => [element("dt", {}, name),
    element("dd", {}, value instanceof Node ? value : shown(value))]));
}

// ---------------------------------------------------------------- rubrics
function rubricsTab() {
  const run = DATA.runs[state.run];
  if (run.rubrics.length === 0) return [element("p", { class: "soft" }, "No rubrics on file.")];
  const picker = element("select", { id: "rubric", "aria-label": "rubric" }, run.rubrics.map((rubric, i) =>
    element("option", { value: i }, `${rubric.id} (${rubric.versions.length} versions)`)));
  picker.value = state.rubric;
  picker.addEventListener("change", () => { state.rubric = Number(picker.value); draw(); });
  const rubric = run.rubrics[state.rubric];
  return [
    element("p", { class: "controls" }, "Rubric of", picker),
    rubric.prompt === null ? element("p", { class: "soft" }, run.has_data_file ? "The rubric of a task." : "The query file is no longer where the config says: prompts and anchors are not shown.") : textPanel("Prompt", rubric.prompt),
    rubric.versions.map((version) => versionPart(version, rubric)),
    element("h2", {}, "Rollouts kept for it"), rolloutTable(rubric.rollouts),
  ];
}

function textPanel(title, text) {
  return element("div", { class: "panel" }, element("div", { class: "soft" }, title), element("pre", {}, text));
}

function versionPart(version, rubric) {
  const by = version.writer ? `, by ${version.writer}` : "";
  const when = version.version === 0 ? "as given" : `from the draw of step ${version.step}${by}`;
  const criteria = element("ol", {}, version.criteria.map((c) => element("li", { class: c.tag === "[Resist]" ? "resist" : null },
    `${c.tag} ${c.text}${c.max === 1 ? "" : ` (0 to ${c.max})`}`)));
  return element("div", { class: version.version ? "version edited" : "version" },
    element("h3", {}, `Version ${version.version}, ${when}`),
    version.edits.map((edit) => editPart(edit, rubric)), criteria);
}

function editPart(edit, rubric) {
  const words = edit.diff === null ? null : edit.diff.map(([what, text]) =>
    what === "same" ? `${text} ` : [element(what === "in" ? "ins" : "del", {}, text), " "]);
  const change = words !== null ? element("p", {}, words)
    : element("p", {}, edit.old ? element("del", {}, edit.old) : null, edit.new ? element("ins", {}, edit.new) : null);
  const caused = rubric.rollouts.filter((r) => r.step === edit.step && edit.rollouts.includes(r.index));
  const beside = [...caused.map((r) => textPanel(`Rollout ${r.index} of step ${r.step}, reward ${shown(r.reward)}${r.vetoed ? ", vetoed" : ""}`, r.response)),
    rubric.anchor ? textPanel(`Anchor, by ${rubric.anchor.model}`, rubric.anchor.response) : null];
  return element("div", { class: "panel" },
    element("span", { class: "chip" }, edit.branch), edit.reason ? element("span", { class: "soft" }, edit.reason) : null, change,
    edit.quotes.map((quote) => element("p", {}, element("q", {}, quote))),
    edit.analysis ? element("p", { class: "soft" }, edit.analysis) : null,
    fold(`Rollouts that caused it (${caused.length}) beside the anchor`, () => element("div", { class: "pair" }, beside)));
}

function fold(title, content) {
  const place = element("div", {});
  const button = element("button", { "aria-expanded": "false", onclick: () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    place.replaceChildren(...(open ? [content()] : []));
  } }, title);
  return element("div", {}, button, place);
}

function rolloutTable(rollouts) {
  if (rollouts.length === 0) return element("p", { class: "soft" }, "None.");
  return table(["step", "version", "reward", "gold", "verdicts"], rollouts.map((r) => [
    r.step, r.version, r.reward, r.gold,
    fold(`rollout ${r.index}${r.vetoed ? ", vetoed" : ""}`, () => element("div", {}, element("pre", {}, r.response),
      definitions(r.verdicts.map((v) => [v.text, `${v.score === null ? `failed: ${v.failure}` : `${shown(v.score)} of ${v.max}`}. ${v.reason || "no reason given"}`])))),
  ]));
}

// ---------------------------------------------------------------- refused, cost
function refusedTab() {
  const run = DATA.runs[state.run];
  const left = run.num_refused - run.refused.length;
  return [element("h2", {}, `Edits refused, failed, or without change (${run.num_refused})`),
    left > 0 ? element("p", { class: "soft" }, `The first ${run.refused.length}; all are in events.jsonl.`) : null,
    table(["step", "query", "branch", "status", "reason"], run.refused.map((e) => [e.step, e.query_id, e.branch, e.status, e.reason]))];
}

function costTab() {
  const chart = (title, name, key) => [element("h2", {}, title), lineChart(
    DATA.runs.map((run, i) => ({ name: label(run), color: COLORS[i % COLORS.length], points: run[key][name] })), { label: title })];
  const evolution = DATA.runs.flatMap((run, i) => [
    { name: `${label(run)}: exposed`, color: COLORS[(2 * i + 4) % COLORS.length], points: run.times.evolve_exposed },
    { name: `${label(run)}: hidden behind other work`, color: COLORS[(2 * i) % COLORS.length], dash: "6 4", points: hidden(run) },
  ]);
  const parts = [...new Set(DATA.runs.flatMap((run) => Object.keys(run.times)))].filter((name) => DATA.runs.some((run) => run.times[name].length));
  return [
    ...chart("Seconds a step", "step", "times"),
    element("h2", {}, "Evolution: seconds a step, exposed and hidden"), lineChart(evolution, { label: "Exposed and hidden evolution" }),
    element("h2", {}, "Mean seconds a step by part"),
    table(["part", ...DATA.runs.map(label)], parts.map((name) => [name, ...DATA.runs.map((run) => average(run.times[name]))])),
    element("h2", {}, "Verdicts without a score, by kind"),
    table(["kind", ...DATA.runs.map(label)], failureRows()),
    ...chart("Judge calls so far", "judge_calls", "totals"),
    ...chart("US dollars so far", "usd", "totals"),
    ...chart("Judge tokens so far", "judge_tokens", "totals"),
    ...chart("Writer tokens so far", "writer_tokens", "totals"),
  ];
}

function hidden(run) {
  const exposed = new Map(run.times.evolve_exposed);
  return run.times.evolve_total.map(([step, total]) => [step, Math.max(0, total - (exposed.get(step) ?? 0))]);
}

function average(points) {
  return points.length ? points.reduce((sum, p) => sum + p[1], 0) / points.length : null;
}

function failureRows() {
  const kinds = [...new Set(DATA.runs.flatMap((run) => Object.keys(run.failures)))];
  if (kinds.length === 0) return [["none: every verdict is a score", ...DATA.runs.map(() => 0)]];
  return kinds.map((kind) => [kind, ...DATA.runs.map((run) => run.failures[kind] ?? 0)]);
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).colorScheme === "dark" || (root.dataset.theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "light" : "dark";
});
draw();
