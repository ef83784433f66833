"use strict";
(() => {
  const data = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const find = (selector, within = document) => [...within.querySelectorAll(selector)];
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // ---- light and dark
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const themeButton = document.getElementById("theme");
  function setTheme(name) {
    root.dataset.theme = name;
    themeButton.textContent = name === "dark" ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", `Show in ${name === "dark" ? "light" : "dark"} colours`);
    find(".plot").filter((plot) => plot.dataset.drawn).forEach(draw);
  }
  themeButton.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));

  // ---- figures
  function chosen(plot) {
    return find("select", plot.closest(".card")).map((select) => select.value);
  }
  function axis(given, narrow) {
    return {
      automargin: true, gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"),
      ...given, title: { ...(given.title || {}), font: { size: narrow ? 12 : 14 }, standoff: 8 },
    };
  }
  function layout(plot, given) {
    const narrow = plot.clientWidth < 560;
    const shown = { ...given };
    Object.keys(given).filter((key) => /^[xy]axis/.test(key)).forEach((key) => { shown[key] = axis(given[key], narrow); });
    return {
      ...shown,
      font: { color: colour("text"), family: "system-ui, sans-serif", size: narrow ? 12 : 13 },
      title: { ...(given.title || {}), font: { size: 15 }, x: 0.02, xanchor: "left" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: narrow ? 48 : 64, r: 12, t: given.title ? 44 : 16, b: 48 },
      legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, font: { size: 12 } },
      hoverlabel: { align: "left", bgcolor: colour("text"), font: { color: colour("card"), size: 13 } },
      // Names on the vertical axis need a line each.
      height: Math.max(narrow ? 320 : 400, 90 + 18 * (given.yaxis?.categoryarray || []).length)
        + 24 * legendRows(plot, plot.figure.data),
      dragmode: false,
    };
  }
  function legendRows(plot, traces) {
    const names = traces.filter((trace) => trace.showlegend !== false).map((trace) => trace.name || "");
    const widest = 60 + 7 * Math.max(18, ...names.map((name) => name.length));
    return Math.ceil(names.length / Math.max(1, Math.floor(plot.clientWidth / widest)));
  }
  function draw(plot) {
    const panel = data[plot.id];
    plot.figure = panel.figures[JSON.stringify(chosen(plot))];
    plot.point = -1;
    const missing = plot.parentElement.querySelector(".absent");
    missing.hidden = Boolean(plot.figure);
    plot.hidden = !plot.figure;
    plot.dataset.drawn = "yes";
    if (!plot.figure) return Promise.resolve();
    const config = { displaylogo: false, responsive: true, displayModeBar: false };
    const traces = structuredClone(plot.figure.data);
    fill(plot);
    return Plotly.react(plot, traces, layout(plot, plot.figure.layout), config);
  }
  // What a trace shows: where each point is, and its numbers; of a heat map row by row, gaps left out.
  function pointsOf(trace) {
    if (!trace.z) return (trace.y || []).map((y, i) => ({ at: { pointNumber: i }, numbers: [trace.x[i], y] }));
    return trace.z.flatMap((row, i) => row.flatMap((z, j) => z === null ? [] : [{ at: { xval: j, yval: i }, numbers: [trace.x[j], trace.y[i], z] }]));
  }
  // Arrow keys walk over the points of a figure, as the pointer would.
  function walk(plot, step) {
    // Curves that the legend hides are left out; the drawn figure knows what the reader chose.
    const seen = (curve) => ((plot.data || [])[curve] || {}).visible !== "legendonly";
    const points = plot.figure.data.flatMap((trace, curve) =>
      trace.hoverinfo === "skip" || !seen(curve) ? [] : pointsOf(trace).map(({ at }) => ({ curveNumber: curve, ...at })));
    if (!points.length) return;
    plot.point = (plot.point + step + points.length) % points.length;
    Plotly.Fx.hover(plot, [points[plot.point]]);
  }
  // The numbers of a figure as a table, for those who read and those who copy.
  function fill(plot) {
    const details = plot.parentElement.querySelector("details.numbers");
    if (!details.open || !plot.figure) return;
    const traces = plot.figure.data.filter((trace) => trace.showlegend !== false);
    const rows = traces.flatMap((trace) => pointsOf(trace).map(({ numbers }) => [trace.z ? "" : trace.name || "", ...numbers]));
    const names = ["xaxis", "yaxis"].map((key) => plot.figure.layout[key].title.text);
    if (traces[0].z) names.push(traces[0].name);
    const table = document.createElement("table");
    table.innerHTML = "<thead><tr></tr></thead><tbody></tbody>";
    ["", ...names].forEach((name) => { const cell = document.createElement("th"); cell.textContent = name; table.tHead.rows[0].append(cell); });
    rows.forEach((row) => {
      const line = table.tBodies[0].insertRow();
      row.forEach((value) => { line.insertCell().textContent = value; });
    });
    details.querySelector(".scroll").replaceChildren(table);
    hint(table.parentElement);
  }

  // ---- the table
  function sort(head) {
    const table = head.closest("table");
    const place = [...head.parentElement.children].indexOf(head);
    const upwards = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") !== "ascending" : head.dataset.first !== "descending";
    find("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", upwards ? "ascending" : "descending");
    const value = (row) => row.children[place].dataset.value;
    const rows = [...table.tBodies[0].rows].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === "" || b === "") return (a === "") - (b === "");  // what has no number comes last
      const difference = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
      return upwards ? difference : -difference;
    });
    table.tBodies[0].append(...rows);
  }

  // A table wider than its card has a shadow at its right edge as long as more of it is hidden there.
  function hint(scroll) {
    scroll.toggleAttribute("data-more", scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft > 1);
  }
  const sizes = new ResizeObserver((changes) => changes.forEach(({ target }) => hint(target.closest(".scroll"))));
  find(".scroll").forEach((scroll) => {
    scroll.addEventListener("scroll", () => hint(scroll), { passive: true });
    [scroll, ...scroll.children].forEach((part) => sizes.observe(part));
  });

  // ---- what a term means
  const tip = document.getElementById("tip");
  function explain(term) {
    tip.textContent = term.dataset.tip;
    tip.hidden = false;
    const place = term.getBoundingClientRect(), own = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(place.left, window.innerWidth - own.width - 8))}px`;
    const above = place.top - own.height - 6;
    tip.style.top = `${above > 0 ? above : place.bottom + 6}px`;
  }
  const hush = () => { tip.hidden = true; };
  find("[data-tip]").forEach((term) => {
    term.addEventListener("mouseenter", () => explain(term));
    term.addEventListener("focus", () => explain(term));
    term.addEventListener("mouseleave", hush);
    term.addEventListener("blur", hush);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hush(); });

  // ---- tasks
  function show(tab) {
    find("[role=tab]").forEach((other) => {
      const own = other === tab;
      other.setAttribute("aria-selected", own);
      other.tabIndex = own ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !own;
    });
    return drawVisible();
  }
  function drawVisible() {
    return Promise.all(find(".plot").filter((plot) => !plot.dataset.drawn && plot.offsetParent).map(draw));
  }
  find("[role=tab]").forEach((tab, place, tabs) => {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      next.focus();
      show(next);
    });
  });

  find("th button").forEach((button) => button.addEventListener("click", () => sort(button.parentElement)));
  find(".plot").forEach((plot) => {
    find("select", plot.closest(".card")).forEach((select) => select.addEventListener("change", () => draw(plot)));
    plot.parentElement.querySelector("details.numbers").addEventListener("toggle", () => fill(plot));
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); walk(plot, step); }
      if (event.key === "Escape") Plotly.Fx.unhover(plot);
    });
    plot.addEventListener("blur", () => { if (plot.figure) Plotly.Fx.unhover(plot); });
  });
  setTheme(dark.matches ? "dark" : "light");
  drawVisible().then(() => { root.dataset.ready = "yes"; });
})();
