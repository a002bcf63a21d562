// Tabs, filters and the look of charts. Plotly draws them; what they show was decided when the page was written.
"use strict";

const templates = JSON.parse(document.getElementById("templates").textContent);
const root = document.documentElement;
const tabs = [...document.querySelectorAll("nav button")];
const sections = [...document.querySelectorAll("section")];
const config = {
  responsive: true,
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
  const layout = { ...chart.spec.layout, template };
  if (window.innerWidth < 600) layout.margin = { ...layout.margin, l: 40, r: Math.min(layout.margin.r, 52) };
  Plotly.react(chart, data, layout, config);
}

function show() {
  const name = location.hash.slice(2); // "#/name": no anchor, so that the browser does not scroll to it
  const open = sections.find((section) => section.id === name) || sections[0];
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

const preference = matchMedia("(prefers-color-scheme: dark)");
preference.addEventListener("change", (event) => setTheme(event.matches));
document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme !== "dark"));
tabs.forEach((tab) => tab.addEventListener("click", () => (location.hash = `/${tab.dataset.tab}`)));
window.addEventListener("hashchange", openTab);
document.querySelectorAll("select").forEach((select) => select.addEventListener("change", show));
setTheme(preference.matches);
