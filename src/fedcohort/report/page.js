// Tabs, filters and the look of charts. Plotly draws them; what they show was decided when the page was written.
// The address names the tab and its choices, "#/clients?method=fedavg&seed=1", so that they survive a reload.
"use strict";

const templates = JSON.parse(document.getElementById("templates").textContent);
const root = document.documentElement;
const tabs = [...document.querySelectorAll("nav button")];
const sections = [...document.querySelectorAll("section")];
const narrow = window.innerWidth < 600;
const crowded = 4; // methods in a chart from which bands would hide each other: one shows below the pointer
const config = {
  responsive: true,
  displayModeBar: narrow ? false : "hover",
  displaylogo: false,
  modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
  toImageButtonOptions: { format: "svg", filename: "fedcohort" },
};

// The choice made in each filter of a section, by its key.
function chosen(section) {
  return Object.fromEntries([...section.querySelectorAll("select")].map((s) => [s.dataset.key, s.value]));
}

// Whether something with these tags is wanted: "*" wants everything, and what has no such tag is always wanted.
function wanted(tags, choice) {
  return Object.entries(choice).every(([key, value]) => value === "*" || !(key in tags) || tags[key] === value);
}

function draw(article, choice) {
  const chart = article.querySelector(".chart");
  if (!chart) return;
  const template = templates[root.dataset.theme];
  if (!chart.spec) {
    chart.spec = JSON.parse(article.querySelector("script").textContent);
    chart.innerHTML = "";
  }
  const data = chart.spec.data.map((trace) => ({ ...trace, visible: wanted(trace.meta || {}, choice) }));
  const bands = data.map((trace, number) => ({ trace, number })).filter(({ trace }) => trace.fill && trace.visible);
  const many = bands.length > crowded;
  if (many) bands.forEach(({ trace }) => (trace.opacity = 0));
  const layout = { ...chart.spec.layout, template };
  if (narrow) layout.margin = { ...layout.margin, l: 40, r: Math.min(layout.margin.r, 52) };
  Plotly.react(chart, data, layout, config);
  chart.removeAllListeners("plotly_hover");
  if (many) chart.on("plotly_hover", ({ points }) => showBand(chart, bands, points[0].data.legendgroup));
}

function showBand(chart, bands, group) {
  const opacity = bands.map(({ trace }) => (trace.legendgroup === group ? 0.25 : 0));
  Plotly.restyle(chart, { opacity }, bands.map(({ number }) => number));
}

// The tab that the address names, with its choices; "#/name" is no anchor, so the browser does not scroll to it.
function opened() {
  const [name, choice] = location.hash.slice(2).split("?");
  const open = sections.find((section) => section.id === name) || sections[0];
  for (const [key, value] of new URLSearchParams(choice)) {
    const select = [...open.querySelectorAll("select")].find((each) => each.dataset.key === key);
    if (select && [...select.options].some((option) => option.value === value)) {
      select.value = value;
      share(select);
    }
  }
  return open;
}

// A choice holds in every tab that offers the same.
function share(select) {
  for (const other of document.querySelectorAll("select")) {
    if (other.dataset.key === select.dataset.key && other.innerHTML === select.innerHTML) other.value = select.value;
  }
}

function address(section) {
  const choice = new URLSearchParams(chosen(section)).toString();
  return `#/${section.id}${choice && "?"}${choice}`;
}

function choose(select) {
  share(select);
  history.replaceState(null, "", address(select.closest("section")));
  show();
}

function show() {
  const open = opened();
  tabs.forEach((tab) => tab.setAttribute("aria-selected", String(tab.dataset.tab === open.id)));
  sections.forEach((section) => (section.hidden = section !== open));
  const choice = chosen(open);
  const articles = [...open.querySelectorAll("article")];
  for (const article of articles) {
    article.hidden = !wanted(JSON.parse(article.dataset.tags), choice);
    if (!article.hidden) draw(article, choice);
  }
  open.querySelector(".empty").hidden = articles.some((article) => !article.hidden);
}

function openTab() {
  show();
  window.scrollTo(0, 0);
}

function setTheme(dark) {
  root.dataset.theme = dark ? "dark" : "light";
  show();
}

// The reader's own choice of light or dark, for as long as the browser's tab is open.
function keepTheme(dark) {
  try {
    sessionStorage.setItem("dark", dark);
  } catch { /* a browser that keeps nothing */ }
  setTheme(dark);
}

function keptTheme() {
  try {
    const dark = sessionStorage.getItem("dark");
    return dark === null ? preference.matches : dark === "true";
  } catch {
    return preference.matches;
  }
}

const preference = matchMedia("(prefers-color-scheme: dark)");
preference.addEventListener("change", (event) => setTheme(event.matches));
document.getElementById("theme").addEventListener("click", () => keepTheme(root.dataset.theme !== "dark"));
tabs.forEach((tab) => tab.addEventListener("click", () => (location.hash = address(document.getElementById(tab.dataset.tab)))));
window.addEventListener("hashchange", openTab);
document.querySelectorAll("select").forEach((select) => select.addEventListener("change", () => choose(select)));
setTheme(keptTheme());
