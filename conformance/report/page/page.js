"use strict";
// The report's data (the document that html.cpp embeds) becomes the page. Everything is text until it is put into an element.
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const BAD = new Set(["fail", "crash", "timeout"]);
const NAMES = { pass: "passed", warning: "warning", not_supported: "not supported", not_run: "not run", fail: "failed", crash: "crashed", timeout: "timed out" };

// el("div.class", {attribute: value}, child, ...): an element; strings become text.
function el(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

// ---- Counting -------------------------------------------------------------------------------------------------------
const isBad = (result) => BAD.has(result.verdict) && !result.waived;
function tally(results) {
  const count = { all: results.length, pass: 0, warning: 0, not_supported: 0, not_run: 0, bad: 0 };
  for (const result of results) count[BAD.has(result.verdict) ? "bad" : result.verdict]++;
  return count;
}
// What stands for many cases: the worst that needs a look; silence (nothing ran) only when there is nothing else.
function worst(count) {
  if (count.bad) return "bad";
  if (count.warning) return "warning";
  if (count.pass) return "pass";
  return count.not_supported ? "not_supported" : "not_run";
}
const words = (count) => [["bad", "failed"], ["warning", "with warnings"], ["pass", "passed"], ["not_supported", "not supported"], ["not_run", "not run"]]
  .filter(([key]) => count[key]).map(([key, text]) => `${count[key]} ${text}`).join(", ");
const groupBy = (results, key) => results.reduce((groups, result) => {
  const name = key(result);
  if (name !== undefined) (groups.get(name) || groups.set(name, []).get(name)).push(result);
  return groups;
}, new Map());
// Numbers by value, texts by letter; axes of tables come in the order of the cases.
const natural = (a, b) => a.localeCompare(b, undefined, { numeric: true });

// ---- Sections -------------------------------------------------------------------------------------------------------
const navigation = document.getElementById("nav");
function section(id, title, lead, ...content) {
  navigation.append(el("a", { href: `#${id}` }, title));
  page.append(el("section", { id }, el("h2", {}, title), lead ? el("p.lead", {}, lead) : undefined, ...content));
}

function head() {
  const m = data.manifest, count = tally(data.results), title = data.verdict.title, ok = !data.verdict.reasons.length;
  const split = (kind) => data.results.filter((result) => result.verdict === kind).length;
  const tile = (number, text) => el(number ? "div.tile" : "div.tile.zero", {}, el("b", {}, number.toLocaleString("en")), el("span", {}, text));
  const part = (number, kind, text) => number ? el(`i.${kind}`, { style: `flex:${number}`, title: `${number} ${text}` }) : undefined;
  const subject = [["transport", m.transports], ["algorithm", m.algorithms], ["device", m.devices || []]].filter(([, names]) => names.length).map(([kind, names]) => `${kind} ${names.join(", ")}`).join("; ");
  page.append(el(ok ? "div.verdict" : "div.verdict.bad", {},
    el("div.soft", {}, subject || "everything that was found"),
    el("h1", {}, title[0].toUpperCase() + title.slice(1)),
    data.verdict.reasons.length ? el("ul", {}, data.verdict.reasons.map((reason) => el("li", {}, reason))) : undefined,
    el("div.facts", {}, [`level ${m.level}`, `${data.results.length.toLocaleString("en")} cases`, `${m.seconds.toFixed(1)} s`, m.started.replace("T", " ").replace("Z", " UTC"),
      `Tutti ${m.library_version}`, m.machine.host].filter(Boolean).map((text) => el("span", {}, text))),
    el("div.bar", { role: "img", "aria-label": words(count) }, part(count.bad, "bad-fill", "failed"), part(count.warning, "warning", "with warnings"), part(count.pass, "pass", "passed"),
      part(count.not_supported, "not_supported", "not supported"), part(count.not_run, "not_run", "not run")),
    el("div.tiles", {}, tile(count.pass + count.warning, "passed"), tile(count.warning, "with warnings"), tile(split("fail"), "failed"), tile(split("crash"), "crashed"),
      tile(split("timeout"), "timed out"), tile(count.not_supported, "not supported"), tile(count.not_run, "not run"))));
}

function again(command) {
  const button = el("button", { type: "button", onclick: () => navigator.clipboard.writeText(command).then(() => { button.textContent = "copied"; }, () => { button.textContent = "select it"; }) }, "copy");
  return el("div.again", {}, el("code", {}, command), button);
}
const clauseChips = (result) => result.clause ? el("span.chip.fail", { title: "the clause that is broken" }, `breaks ${result.clause}`)
  : result.clauses.length ? el("span.chip", { title: "clauses that the case checks" }, result.clauses.join(" ")) : undefined;

// Results worth a card of their own; those whose message differs in numbers only are told together.
function told(id, title, results, what) {
  if (!results.length) return;
  const groups = [...groupBy(results, (result) => `${result.clause || result.clauses.join()}|${result.message.replace(/[\d.]+(e[+-]\d+)?/g, "#").split("\n")[0]}`).values()];
  groups.sort((a, b) => b.length - a.length);
  const card = (group) => el(BAD.has(group[0].verdict) ? "article.told" : "article.told.slow", {},
    el("header", {}, el(`span.chip.${group[0].verdict}`, {}, NAMES[group[0].verdict]), clauseChips(group[0]), group[0].must_pass ? el("span.chip", {}, "must pass") : undefined,
      group[0].waived ? el("span.chip", {}, "waived") : undefined, el("span.id.mono", {}, group[0].id)),
    el("div.message", {}, group[0].message || "no message"), again(group[0].reproduce),
    group.length > 1 ? el("details", {}, el("summary", {}, `the same in ${group.length - 1} more`), el("div.cases", {}, group.slice(1, 201).map(caseRow))) : undefined);
  const shown = 20, box = el("div", {}, groups.slice(0, shown).map(card));
  if (groups.length > shown)
    box.append(el("button.more", { type: "button", onclick: (event) => { event.target.remove(); box.append(...groups.slice(shown).map(card)); } }, `show ${groups.length - shown} more`));
  section(id, title, `${results.length} in ${groups.length} ${groups.length === 1 ? "kind" : "kinds"}${what}; each with the command that runs it again with the same data.`, box);
}
const failures = () => told("failures", "Failures", data.results.filter((result) => BAD.has(result.verdict)), "");
const warnings = () => told("warnings", "Warnings", data.results.filter((result) => result.verdict === "warning"), ": right, but slow, and nothing against conformance");

function cell(results, filter, label) {
  if (!results) return el("td", {}, el("span.cell.empty", { title: `${label}: no case` }));
  const count = tally(results), kind = worst(count);
  const text = kind === "bad" ? `${count.bad}✕` : kind === "not_supported" ? "–" : kind === "not_run" ? "" : `${count.pass + count.warning}`;
  const button = el(`button.cell.${kind}`, { type: "button", title: `${label}: ${words(count)}`, "aria-label": `${label}: ${words(count)}`, onclick: () => choose(filter, button) }, text);
  return el("td", {}, button);
}
function heatMap(title, results, rowAxis, columnAxis, extra, order) {
  const of = (result, axis) => axis(result);
  const rows = [...new Set(results.map((result) => of(result, rowAxis.of)))].sort(order?.row), columns = [...new Set(results.map((result) => of(result, columnAxis.of)))].sort(order?.column);
  const cells = groupBy(results, (result) => `${of(result, rowAxis.of)}\n${of(result, columnAxis.of)}`);
  return el("div.map", {}, el("h3", {}, title, el("small", {}, words(tally(results)))),
    el("table", {}, el("thead", {}, el("tr", {}, el("th", {}), columns.map((name) => el("th.column", { scope: "col" }, el("span", {}, name))))),
      el("tbody", {}, rows.map((row) => el("tr", {}, el("th.row", { scope: "row" }, row), columns.map((column) =>
        cell(cells.get(`${row}\n${column}`), { ...extra, [rowAxis.name]: row, [columnAxis.name]: column }, [title, row, column].join(" · "))))))));
}
const axis = (name) => ({ name, of: (result) => result.axes[name] });
const legend = () => el("div.legend", {}, [["pass", "all passed (how many)"], ["warning", "right, with warnings"], ["bad-fill", "failed (how many)"], ["not_supported", "not supported"], ["not_run", "not run"]]
  .map(([kind, text]) => el("span", {}, el(`i.${kind}`), text)));

function matrix() {
  const results = data.results.filter((result) => result.axes.collective && result.axes.algorithm);
  if (!results.length) return;
  const onDevice = (result) => result.axes.device && result.axes.device !== "host";
  const maps = [...groupBy(results, (result) => result.axes.transport ? result.axes.transport + (onDevice(result) ? `, on ${result.axes.device}` : "") : (result.kind === "proof" ? "schedules, proved" : result.kind))];
  section("matrix", "The matrix", "Collectives by algorithms: with numbers over each transport and mix, on the host and on each device, and as schedules that are proved. Choose a cell to see its cases.", legend(),
    el("div.maps", {}, maps.map(([title, group]) => {
      const { transport, device } = group[0].axes;
      return heatMap(title, group, axis("collective"), axis("algorithm"), transport ? { transport, ...(device ? { device } : {}) } : { suite: group[0].kind });
    })));
}

// What the clauses of the contract say, and what became of the cases that name them: those of algorithms by algorithm, those of devices
// by device, all others by transport.
const kindOf = (clause) => clause.startsWith("A-") ? "algorithm" : /^[DX]-/.test(clause) ? "device" : "transport";
function contract() {
  const results = data.results.filter((result) => result.clauses.length);
  if (!results.length) return;
  const spread = results.flatMap((result) => result.clauses.map((clause) => {
    const about = kindOf(clause);
    return { result, clause, about, column: result.axes[about] || "plugins" };
  }));
  const known = new Map(data.clauses.map((clause) => [clause.id, clause.text]));
  for (const { clause } of spread) if (!known.has(clause)) known.set(clause, "");
  const named = new Set(spread.map((pair) => pair.clause));
  const silent = [...known.keys()].filter((clause) => !named.has(clause)).length;
  const table = (title, about) => {
    const pairs = spread.filter((pair) => pair.about === about), rows = [...known].filter(([clause]) => kindOf(clause) === about);
    const columns = [...new Set(pairs.map((pair) => pair.column))].sort(natural), cells = groupBy(pairs, (pair) => `${pair.clause}\n${pair.column}`);
    const row = ([clause, text]) => el("tr", {}, el("th.clause", { scope: "row" }, clause), el(named.has(clause) ? "td.text" : "td.text.silent", {}, marked(text)),
      columns.map((column) => cell(cells.get(`${clause}\n${column}`)?.map((pair) => pair.result), column === "plugins" ? { clause } : { clause, [about]: column }, `${clause} · ${column}`)));
    return el("div.map", {}, el("h3", {}, title), el("table.promises", {}, el("thead", {}, el("tr", {}, el("th", {}), el("th", {}), columns.map((name) => el("th.column", { scope: "col" }, el("span", {}, name))))),
      el("tbody", {}, rows.map(row))));
  };
  section("contract", "The contract", `${named.size} clauses of docs/plugin-guide.md are named by ${results.length.toLocaleString("en")} cases of this run${silent ? `; ${silent} were not looked at` : ""}.`,
    el("div.maps", {}, table("Plugins and transports", "transport"), table("Algorithms", "algorithm"), table("Devices", "device")));
}
// Text with `code` in it.
const marked = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

// ---- Drill-down -----------------------------------------------------------------------------------------------------
const filters = {};
let search = "", shown = 100;
const list = el("div"), facets = el("div.facets"), summary = el("p.lead");
const value = (result, name) => name === "verdict" ? NAMES[result.verdict] : name === "suite" ? result.kind : result.axes[name];
function matching(except) {
  return data.results.filter((result) => Object.entries(filters).every(([name, wanted]) =>
    name === except || (name === "clause" ? result.clauses.includes(wanted) : value(result, name) === wanted)) && (!search || result.id.includes(search) || result.message.includes(search)));
}
function choose(filter, button) {
  for (const name of Object.keys(filters)) delete filters[name];
  for (const [name, wanted] of Object.entries(filter)) if (wanted !== "all") filters[name] = wanted;
  for (const other of document.querySelectorAll(".cell.on")) other.classList.remove("on");
  if (button) button.classList.add("on");
  draw();
  remember();
  document.getElementById("cases").scrollIntoView({ behavior: "smooth" });
}
function toggle(name, wanted) {
  if (filters[name] === wanted) delete filters[name];
  else filters[name] = wanted;
  draw();
  remember();
}
function facet(name) {
  const groups = [...groupBy(matching(name), (result) => value(result, name))];
  if (groups.length < 2 && filters[name] === undefined) return undefined;
  groups.sort((a, b) => natural(a[0], b[0]));
  return el("div.facet", {}, el("span", {}, name), el("div", {}, groups.slice(0, 40).map(([text, group]) => {
    const bad = group.filter(isBad).length;
    return el(bad ? "button.has-bad" : "button", { type: "button", "aria-pressed": String(filters[name] === text), onclick: () => toggle(name, text) }, text, el("small", {}, bad ? `${bad}✕ of ${group.length}` : `${group.length}`));
  })));
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1024 && unit < 4; ++unit) n /= 1024;
  return `${unit ? n.toFixed(1) : n} ${units[unit]}`;
}
function inside(result) {
  const a = result.attestation || {}, facts = [];
  const fact = (name, text) => { if (text) facts.push(el("dt", {}, name), el("dd", {}, text)); };
  fact("clauses", result.clauses.join(", "));
  fact("algorithm", a.algorithm);
  fact("device", a.device);
  fact("plan", a.plan_hash && a.plan_hash !== "0x0" ? el("code", {}, a.plan_hash) : "");
  const sent = (over) => Object.entries(over || {}).map(([name, moved]) => `${name}: ${bytes(moved)} sent`).join("; ");
  fact("carried by", sent(a.carried));
  fact("over rails", sent(a.rails));
  fact("plugins", (a.plugins || []).join(", "));
  fact("seed", el("code", {}, result.seed));
  return el("div.inside", {}, result.message ? el("div.message", {}, result.message) : undefined, el("dl", {}, facts), again(result.reproduce));
}
function caseRow(result) {
  const row = el("details.case", { ontoggle: () => { if (row.open && row.children.length === 1) row.append(inside(result)); } },
    el("summary", {}, el("span", {}, el(`span.chip.${result.verdict}`, {}, NAMES[result.verdict])), el("span.name.mono", {}, result.id, " ", BAD.has(result.verdict) ? clauseChips(result) : undefined), el("time", {}, `${result.seconds.toFixed(2)} s`)));
  return row;
}
// The filters are the page's address, so that what is looked at can be sent to somebody.
function remember() {
  const text = new URLSearchParams({ ...filters, ...(search ? { search } : {}) }).toString();
  history.replaceState(null, "", text ? `#cases?${text}` : "#cases");
}
function recall() {
  const [place, text] = location.hash.slice(1).split("?");
  if (place !== "cases" || !text) return;
  for (const [name, wanted] of new URLSearchParams(text)) if (name === "search") search = wanted; else filters[name] = wanted;
}
function draw() {
  const names = [...new Set(data.results.flatMap((result) => Object.keys(result.axes)))];
  const drawn = ["verdict", "suite", ...names].map(facet).filter(Boolean);
  if (filters.clause) drawn.unshift(el("div.facet", {}, el("span", {}, "clause"), el("div", {}, el("button", { type: "button", "aria-pressed": "true", onclick: () => toggle("clause", filters.clause) }, filters.clause))));
  facets.replaceChildren(...drawn);
  const found = matching().sort((a, b) => BAD.has(b.verdict) - BAD.has(a.verdict));
  summary.textContent = `${found.length.toLocaleString("en")} of ${data.results.length.toLocaleString("en")}${found.length ? `: ${words(tally(found))}` : ""}`;
  list.replaceChildren(el("div.cases", {}, found.slice(0, shown).map(caseRow)));
  if (found.length > shown) list.append(el("button.more", { type: "button", onclick: () => { shown += 400; draw(); } }, `show more (${found.length - shown})`));
}
function cases() {
  const input = el("input", { type: "search", placeholder: "part of an id or a message", "aria-label": "search", oninput: () => { search = input.value; draw(); remember(); } });
  const clear = el("button", { type: "button", onclick: () => { input.value = search = ""; shown = 100; choose({}); } }, "clear");
  recall();
  input.value = search;
  section("cases", "Cases", undefined, summary, el("div.search", {}, input, clear), facets, list);
  draw();
}

// ---- What it ran on -------------------------------------------------------------------------------------------------
const pairs = (object) => el("dl", {}, Object.entries(object).filter(([, text]) => text).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
function waivers() {
  if (!data.waivers?.length) return;
  section("waivers", "Waivers", "Cases that may fail, why, and until when. An expired waiver does not count.", el("div.panel", {}, data.waivers.map((waiver) => el("div.waiver", {},
    el("span.chip", waiver.in_force ? {} : { class: "chip fail" }, waiver.in_force ? `until ${waiver.expires}` : `expired ${waiver.expires}`), " ", el("code", {}, waiver.cases),
    el("div", {}, waiver.reason), /^https?:/.test(waiver.link) ? el("a", { href: waiver.link, rel: "noopener noreferrer" }, waiver.link) : el("span", {}, waiver.link)))));
}
function environment() {
  const m = data.manifest;
  const plugin = (p) => el("div.plugin", {}, el("b", {}, p.id || p.path), " ", p.version, " ", el("small", {}, p.vendor),
    p.refused ? el("div.message", {}, el("span.chip.fail", {}, "refused"), " ", p.refused) : el("div", {}, [["transports", p.transports], ["algorithms", p.algorithms], ["devices", p.devices || []]].filter(([, names]) => names.length).map(([kind, names]) => `${kind}: ${names.join(", ")}`).join("; ")),
    el("div.soft", {}, el("code", {}, p.path)), p.sha256 ? el("div.soft", {}, "SHA-256 ", el("code", {}, p.sha256)) : undefined);
  const panel = (title, content, wide) => el(wide ? "div.panel.wide" : "div.panel", {}, el("h3", {}, title), content);
  section("environment", "Environment", "Everything by which somebody else could make the same run.", el("div.tables", {},
    panel("Machine", pairs({ ...m.machine, memory: m.machine.memory && bytes(Number(m.machine.memory)) })),
    panel("Run", pairs({ command: el("code", {}, m.command_line), level: m.level, seed: m.seed, suite: m.suite_version, library: m.library_version, "library SHA-256": el("code", {}, m.library_sha256), started: m.started })),
    panel("Network interfaces", Object.keys(m.interfaces).length ? pairs(m.interfaces) : el("p.soft", {}, "none")),
    panel("Settings", Object.keys(m.settings).length ? pairs(m.settings) : el("p.soft", {}, "no TUTTI_ variable is set")),
    panel("Plugins", el("div", {}, m.plugins.map(plugin)), true)));
}

const themes = ["system", "light", "dark"];
const preferred = matchMedia("(prefers-color-scheme: dark)");
let theme = "system";
function paint() {
  document.documentElement.dataset.theme = theme === "system" ? (preferred.matches ? "dark" : "light") : theme;
  document.getElementById("theme").textContent = theme;
}
document.getElementById("theme").addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % 3]; paint(); });
preferred.addEventListener("change", paint);
paint();
head();
failures();
warnings();
matrix();
contract();
cases();
waivers();
environment();
page.append(el("footer", {}, `tutti-conform ${data.manifest.suite_version}. Pass, fail, crash, timeout, not supported and not run are told apart; "not supported" is what a plugin says of itself, and never counts as passed.`));
if (location.hash) document.getElementById(location.hash.slice(1).split("?")[0])?.scrollIntoView();
