"use strict";
const content = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);

/* An element with attributes and children; text is always text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, v]) => element.style.setProperty(key, v));
    else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== "" && child !== null && child !== undefined));
  return element;
}

/* ---- light and dark ---- */
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
const dark = () => document.documentElement.dataset.theme === "dark";
function applyTheme() {
  document.documentElement.dataset.theme = chosenTheme ?? (prefersDark.matches ? "dark" : "light");
  byId("theme").textContent = dark() ? "☀ light" : "☾ dark";
  drawn.forEach((chart) => chart.draw());
}
const drawn = new Set();
byId("theme").addEventListener("click", () => { chosenTheme = dark() ? "light" : "dark"; applyTheme(); });
prefersDark.addEventListener("change", applyTheme);
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
/* Black lines become the text's colour, dark ones lighter, where the ground is dark. */
function shade(colour) {
  if (!dark()) return colour;
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const light = 0.299 * r + 0.587 * g + 0.114 * b;
  const mix = Math.max(0, (140 - light) / 255);
  return "#" + [r, g, b].map((v) => Math.round(v + (255 - v) * mix).toString(16).padStart(2, "0")).join("");
}

/* ---- charts ---- */
function axis(title, log) {
  return { title: { text: title, font: { size: 12 } }, type: log ? "log" : "linear", gridcolor: variable("--line"),
    zeroline: false, linecolor: variable("--line"), tickfont: { size: 11 }, automargin: true };
}
function layout(chart, extra = {}) {
  return { margin: { l: 52, r: 8, t: 6, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: variable("--ink"), family: "system-ui, sans-serif" }, showlegend: false, hovermode: "closest",
    hoverlabel: { bgcolor: variable("--card"), bordercolor: variable("--line"), font: { color: variable("--ink"), size: 12 } },
    xaxis: axis(chart.xlabel, chart.xlog), yaxis: axis(chart.ylabel, chart.ylog), ...extra };
}
const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"], scrollZoom: false, displayModeBar: false };

function curves(chart, hidden) {
  const traces = [];
  const all = chart.traces.flatMap((trace) => trace.x);
  const ends = [Math.min(...all), Math.max(...all)];
  chart.traces.forEach((trace, at) => {
    if (trace.missing || hidden.has(at)) return;
    const colour = shade(trace.colour);
    if (trace.low) {
      const ground = { mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
      traces.push({ x: trace.x, y: trace.low, ...ground });
      traces.push({ x: trace.x, y: trace.high, ...ground, fill: "tonexty", fillcolor: colour + "33" });
    }
    traces.push({ x: trace.x, y: trace.y, name: trace.label, mode: trace.markers ? (trace.dash === "none" ? "markers" : "lines+markers") : "lines",
      line: { color: colour, dash: trace.dash, width: 2 }, marker: { color: colour, size: 5 },
      hovertemplate: `<b>%{fullData.name}</b><br>${chart.xlabel} %{x}: %{y:.5g}<extra></extra>` });
  });
  chart.lines.forEach((line, at) => {
    if (hidden.has("line" + at) || !all.length) return;
    traces.push({ x: ends, y: [line.value, line.value], name: line.label, mode: "lines", opacity: 0.75,
      line: { color: shade(line.colour), dash: line.dash, width: 1.4 }, hovertemplate: "%{fullData.name}<extra></extra>" });
  });
  return traces;
}

function key(label, colour, dash, shown, toggle) {
  const button = make("button", { class: "key", type: "button", "aria-pressed": String(shown), "data-dash": dash },
    make("i", { style: { "--colour": colour === "#000000" ? "currentColor" : colour } }), label);
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    toggle(on);
  });
  return button;
}

function commandList(entries) {
  return make("details", {}, make("summary", {}, entries.length > 1 ? "commands" : "command"),
    ...entries.map(([label, command]) => make("div", {}, make("small", {}, label), make("pre", {}, command))));
}

function chartCard(chart) {
  const plot = make("div", { class: "plot" });
  const hidden = new Set(chart.traces.flatMap((trace, at) => (trace.hidden ? [at] : [])));
  const keys = make("div", { class: "keys" });
  const toggle = (...names) => (on) => { names.forEach((name) => (on ? hidden.delete(name) : hidden.add(name))); card.draw(); };
  chart.traces.forEach((trace, at) => {
    if (trace.hidden) return;
    const one = key(trace.label, trace.colour, trace.dash, !trace.missing, toggle(at));
    one.disabled = Boolean(trace.missing);
    keys.append(one);
  });
  /* Curves that are hidden at first have one key for all of a kind. */
  for (const kind of new Set(chart.traces.map((trace) => trace.hidden).filter(Boolean))) {
    const members = chart.traces.flatMap((trace, at) => (trace.hidden === kind ? [at] : []));
    keys.append(key(kind, "#777777", "dot", false, toggle(...members)));
  }
  chart.lines.forEach((line, at) => keys.append(key(line.label, line.colour, line.dash, true, toggle("line" + at))));
  const commands = chart.traces.filter((trace) => trace.command && !trace.hidden).map((trace) => [trace.label, trace.command]);
  const any = chart.traces.some((trace) => trace.x.length);
  const element = make("div", { class: "chart" }, make("h3", {}, chart.title),
    ...(any ? [plot, keys] : [make("p", { class: "none" }, "Not run.", make("br"), ...chart.lines.flatMap((line) => [line.label, make("br")]))]),
    commands.length ? commandList(commands) : "");
  const card = { draw() {
    const extra = chart.yrange ? { yaxis: { ...axis(chart.ylabel, chart.ylog), range: chart.ylog ? chart.yrange.map(Math.log10) : chart.yrange } } : {};
    Plotly.react(plot, curves(chart, hidden), layout(chart, { uirevision: "kept", ...extra }), options);
  } };
  if (any) lazily(plot, card);
  return element;
}

/* Charts are drawn when they come near the screen: a phone need not draw thirty at once. */
const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
  if (!entry.isIntersecting) return;
  watcher.unobserve(entry.target);
  const card = waiting.get(entry.target);
  card.draw();
  drawn.add(card);
}), { rootMargin: "400px" });
const waiting = new Map();
function lazily(plot, card) { waiting.set(plot, card); watcher.observe(plot); }

/* ---- claims ---- */
const slug = (group) => group.replace(" ", "-");
const groups = content.groups.map((group) => group.name);
function claimBoard() {
  byId("claims-summary").textContent = content.summary + ". Click a tile for the quotation, the rule, our numbers and the command that decides it. Tiles marked (ours) are not claims of the paper and are counted separately. The small model (200 units) decides no claim; ▲ and ▼ show whether it agrees or disagrees. The buttons show and hide groups of verdicts: " +
    content.groups.map((group) => `${group.name} (${group.verdicts.join(", ")})`).join(", ") + ".";
  const shown = new Set(groups);
  const claims = groups.flatMap((group) => content.claims.filter((claim) => claim.group === group));
  const tiles = claims.map((claim) => {
    const tile = make("button", { class: `tile ${slug(claim.group)}`, type: "button", id: `tile-${claim.id}`, onclick: () => openClaim(claim) },
      make("b", {}, claim.id + (claim.ours ? " (ours)" : ""), claim.small ? make("span", { class: claim.small, style: { color: "var(--tone)" } }, claim.small === "agrees" ? "▲" : "▼") : ""),
      make("span", {}, claim.statement),
      make("small", {}, claim.verdict));
    byId("board").append(tile);
    return tile;
  });
  content.groups.forEach(({ name: group, paper, ours }) => {
    const chip = make("button", { class: "chip", type: "button", "aria-pressed": "true" }, `${group} ${paper}` + (ours ? `, ours ${ours}` : ""));
    chip.addEventListener("click", () => {
      shown.has(group) ? shown.delete(group) : shown.add(group);
      chip.setAttribute("aria-pressed", String(shown.has(group)));
      tiles.forEach((tile, at) => { tile.hidden = !shown.has(claims[at].group); tile.style.display = tile.hidden ? "none" : ""; });
    });
    byId("claim-filter").append(chip);
  });
}
function openClaim(claim) {
  const rows = [["In the paper", claim.paper], ["Rule", claim.rule], ["Our numbers", claim.numbers || "none yet"],
    ["Seeds", claim.n ? String(claim.n) : ""], ["Small model (200 units)", claim.small_model], ["Shown in", claim.shown_in.join(", ")]];
  byId("detail-body").replaceChildren(
    make("div", { class: `head ${slug(claim.group)}` }, make("div", {}, make("h3", {}, `${claim.id}: ${claim.statement}`), make("span", { class: "verdict" }, claim.verdict)),
      make("button", { type: "button", onclick: () => byId("detail").close() }, "Close")),
    claim.quotation ? make("blockquote", {}, `“${claim.quotation}”`) : make("p", { class: "note" }, "A claim of ours: the paper has no such sentence."),
    make("dl", {}, ...rows.filter(([, text]) => text).flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]),
      make("dt", {}, claim.group === "not run" || claim.group === "indicative" ? "Decide it with" : "Check it with"),
      make("dd", {}, ...claim.commands.map((command) => make("pre", {}, command)))));
  byId("detail").showModal();
}
byId("detail").addEventListener("click", (event) => { if (event.target === byId("detail")) byId("detail").close(); });

/* ---- tables ---- */
function table(one) {
  const wide = (column) => ["hardware", "dropout rates"].includes(column);
  const cell = (text, at) => {
    const column = one.columns[at];
    const kind = text === "not run" || text === "–" ? "off" : wide(column) ? "wide" : column.includes("ours") ? "mine" : "";
    return make("td", { class: kind }, text.replaceAll("**", ""));
  };
  return make("div", {}, make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...one.columns.map((column) => make("th", {}, column)))),
    make("tbody", {}, ...one.rows.map((row) => make("tr", {}, ...row.map(cell)))))),
    make("p", { class: "note" }, one.note));
}
function tables() {
  const tabs = content.tables.map((one, at) => {
    const tab = make("button", { role: "tab", type: "button", "aria-selected": String(at === 0) }, one.title);
    tab.addEventListener("click", () => {
      tabs.forEach((other) => other.setAttribute("aria-selected", String(other === tab)));
      byId("table-panel").replaceChildren(table(one));
    });
    return tab;
  });
  byId("table-tabs").append(...tabs);
  byId("table-panel").replaceChildren(table(content.tables[0]));
}

/* ---- figures and speed ---- */
function figures() {
  const claims = Object.fromEntries(content.claims.map((claim) => [claim.id, claim]));
  for (const figure of content.figures) {
    const links = make("div", { class: "claimlinks chips" }, ...figure.claims.filter((id) => claims[id]).map((id) =>
      make("button", { type: "button", class: slug(claims[id].group), style: { color: "var(--tone)" }, onclick: () => openClaim(claims[id]) }, id)));
    const empty = figure.empty.length && figure.panels.length ? make("p", { class: "note" }, `Not run: ${figure.empty.join("; ")}.`) : "";
    const missing = figure.missing.length ? commandList([[figure.panels.length ? "The runs that are still missing:" : "Not run. The runs behind it:", figure.missing.join("\n")]]) : "";
    byId("figure-list").append(make("div", { class: "figure", id: figure.name }, make("h3", {}, figure.title + (figure.panels.length ? "" : " (not run)")),
      figure.panels.length ? make("div", { class: "charts" }, ...figure.panels.map(chartCard)) : "", empty, links, missing));
  }
}
function speed() {
  for (const size of content.speed.bars) {
    const plot = make("div", { class: "plot" });
    const bars = [...size.bars].reverse();
    const card = { draw() {
      const trace = { type: "bar", orientation: "h", x: bars.map((bar) => bar.value), y: bars.map((bar) => bar.label),
        marker: { color: bars.map((bar) => shade(bar.colour)) }, hovertemplate: "%{y}: %{x:,.0f} words/s<extra></extra>" };
      Plotly.react(plot, [trace], layout({ xlabel: "words per second" },
        { margin: { l: 10, r: 10, t: 6, b: 40 }, yaxis: { type: "category", automargin: true, tickfont: { size: 11 } } }), options);
    } };
    lazily(plot, card);
    byId("speed-charts").append(make("div", { class: "chart" }, make("h3", {}, `${size.size} model`), plot));
  }
  const where = content.speed.bars.length ? make("p", { class: "note" }, `Bars: ${content.speed.machine}.`) : "";
  byId("speed-table").append(where, table(content.speed.table), make("pre", {}, content.speed.command));
}

/* ---- words ---- */
function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Uint16Array.from({ length: bytes.length / 2 }, (_, at) => view.getUint16(2 * at, true));
}
function words() {
  const panel = byId("words-panel"), data = content.words;
  if (!data) {
    panel.append(make("p", {}, "No trained model was available when this page was written. Train one, or use any finished run of a language model:"),
      make("pre", {}, "make ptb-small\nmake report ARGS='--run RUN_DIR'"));
    return;
  }
  const names = { mutual_information: "mutual information", predictive_entropy: "entropy", surprise: "surprise" };
  const levels = 65535;
  const texts = data.texts.map((text) => ({ ...text, values: Object.fromEntries(Object.entries(text.measures).map(([name, one]) => [name, decode(one)])),
    ids: decode(text.likeliest_ids), p: decode(text.likeliest_p), count: text.words.length - 1 }));
  let measure = "mutual_information", samples = data.samples;
  const value = (text, name, at, used = samples) => (text.values[name][(used - 1) * text.count + at] / levels) * data.scales[name];
  const top = {};
  for (const name of Object.keys(names)) {
    const all = texts.flatMap((text) => Array.from({ length: text.count }, (_, at) => value(text, name, at, data.samples))).sort((a, b) => a - b);
    top[name] = all[Math.floor(0.98 * (all.length - 1))] || 1;
  }
  const label = make("output", {}, String(samples)), end = make("span", {});
  const slider = make("input", { type: "range", min: 1, max: data.samples, value: samples, "aria-label": "number of MC samples", id: "samples" });
  slider.addEventListener("input", () => { samples = Number(slider.value); label.textContent = slider.value; paint(); });
  const buttons = Object.entries(names).map(([name, shown]) => {
    const one = make("button", { class: "chip", type: "button", "aria-pressed": String(name === measure) }, shown);
    one.addEventListener("click", () => { measure = name; buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === one))); paint(); });
    return one;
  });
  const blocks = texts.map((text) => {
    const mean = make("small", { class: "note" });
    const spans = text.words.map((word, at) => {
      const span = make("span", { class: "w", "data-at": at - 1 }, word === "<eos>" ? "¶" : word);
      return span;
    });
    const paragraph = make("p", {});
    spans.forEach((span, at) => { paragraph.append(span, text.words[at] === "<eos>" && text.lines ? make("br") : " "); });
    const show = (event) => {
      const at = Number(event.target.dataset?.at ?? -1);
      at >= 0 ? explain(text, at, event) : hide();
    };
    paragraph.addEventListener("pointermove", show);
    paragraph.addEventListener("click", show);
    paragraph.addEventListener("pointerleave", hide);
    return { text, spans, mean, element: make("div", { class: "text" }, make("h3", {}, text.title), paragraph, mean) };
  });
  function paint() {
    for (const { text, spans, mean } of blocks) {
      let sum = 0;
      for (let at = 0; at < text.count; at++) {
        const v = value(text, measure, at);
        sum += v;
        spans[at + 1].style.setProperty("--v", (0.85 * Math.min(1, v / top[measure])).toFixed(3));
      }
      mean.textContent = `mean ${names[measure]}: ${(sum / text.count).toFixed(3)} nats per word`;
    }
    end.textContent = `${top[measure].toFixed(2)} nats`;
  }
  const tip = byId("tip");
  function hide() { tip.hidden = true; }
  function explain(text, at, event) {
    const base = ((samples - 1) * text.count + at) * 5;
    const rows = [0, 1, 2, 3, 4].map((rank) => [data.vocabulary[text.ids[base + rank]], text.p[base + rank] / levels]);
    tip.replaceChildren(make("b", {}, text.words[at + 1]),
      make("table", {}, ...Object.entries(names).map(([name, shown]) => make("tr", {}, make("td", {}, shown), make("td", {}, value(text, name, at).toFixed(3))))),
      make("table", {}, ...rows.map(([word, p]) => make("tr", {}, make("td", {}, word), make("td", {}, `${(100 * p).toFixed(1)} %`),
        make("td", {}, make("span", { class: "bar", style: { width: `${(5 * p).toFixed(2)}rem` } }))))));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18) + "px";
  }
  addEventListener("scroll", hide, { passive: true });
  panel.append(make("p", {}, data.caption),
    make("div", { class: "controls" }, make("div", { class: "chips", role: "group", "aria-label": "measure" }, ...buttons),
      make("label", {}, "MC samples", slider, label), make("span", { class: "scale" }, "0", make("i"), end)),
    make("div", { class: "texts" }, ...blocks.map((block) => block.element)), make("pre", {}, data.command));
  paint();
}

claimBoard();
tables();
byId("curve-charts").append(...content.curves.map(chartCard));
figures();
words();
speed();
applyTheme();
