"use strict";
// The timeline of a trace. uPlot keeps scales and axes and reads the mouse; lanes and spans are drawn here, because a
// trace has more of them than a document can have elements. What was traced reaches the document as text only.
(() => {
  const trace = JSON.parse(document.getElementById("data").textContent);
  const LANE = 0, ROW = 1, BEGIN = 2, LASTED = 3, NAME = 4, ARGUMENTS = 5;  // of an item
  const POINT = -1, UNFINISHED = -2;
  const AXIS = 34, ROW_HEIGHT = 20, LANE_GAP = 9, LEAST_LANE = 44, MOST_ROWS = 60, LABELS = 150;
  const COLOURS = ["#4c86d9", "#e08a3c", "#4fa86b", "#c95f74", "#8a73c9", "#2f9fae", "#b58a2a", "#d077b3", "#6f8f3a",
    "#5a6fb8", "#b0693f", "#3f8f86"];
  const byId = (id) => document.getElementById(id);
  const items = trace.items, total = trace.length;
  const end = (item) => item[LASTED] === UNFINISHED ? total : item[BEGIN] + Math.max(0, item[LASTED]);
  const colour = (item) => COLOURS[item[NAME] % COLOURS.length];

  // --- numbers as people read them ---------------------------------------------------------------------------------

  function time(ns) {
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
      if (Math.abs(ns) >= size) return `${+(ns / size).toPrecision(4)} ${unit}`;
    return `${Math.round(ns)} ns`;
  }

  function moments(splits, step) {
    const most = Math.max(...splits.map(Math.abs));
    const [size, unit] = most >= 1e9 ? [1e9, "s"] : most >= 1e6 ? [1e6, "ms"] : most >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    let digits = 0;  // so many that steps of 2.5 are told apart, too
    const whole = (value) => Math.abs(value - Math.round(value)) < 1e-6;
    while (digits < 9 && !whole(step / size * 10 ** digits)) digits++;
    return splits.map((value) => `${(value / size).toFixed(digits)} ${unit}`);
  }

  // --- lanes, and where each row of them lies ------------------------------------------------------------------------

  let below = 0;
  const lanes = trace.lanes.map((lane) => {
    const rows = Array.from({ length: Math.min(lane.rows, MOST_ROWS) }, () => []);
    const height = Math.max(LEAST_LANE, rows.length * ROW_HEIGHT + LANE_GAP);
    const top = below;
    below += height;
    return { ...lane, rows, height, top };
  });
  const height = Math.max(below, LEAST_LANE);
  for (const item of items) {
    const rows = lanes[item[LANE]].rows;
    item[ROW] = Math.min(item[ROW], rows.length - 1);
    rows[item[ROW]].push(item);  // in the order of their begins, and so of their ends
  }
  const rowTop = (lane, row) => lane.top + row * ROW_HEIGHT + LANE_GAP / 2 + 1;

  function firstEndingAfter(row, moment) {
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end(row[middle]) < moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  let chosen = null, matches = null;  // an item; a set of items, or null while nothing is searched for
  let style = {};
  function readStyle() {
    const found = getComputedStyle(document.documentElement);
    for (const name of ["panel", "ink", "soft", "line", "stripe", "area", "accent"])
      style[name] = found.getPropertyValue(`--${name}`).trim();
  }

  function draw(chart) {
    const { ctx, bbox } = chart, ratio = devicePixelRatio;
    const { min, max } = chart.scales.x;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * ratio}px system-ui, "Segoe UI", "DejaVu Sans", sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    const at = (value) => bbox.left + (value - min) / (max - min) * bbox.width;
    const letter = ctx.measureText("n").width;
    for (const lane of lanes) {
      const top = bbox.top + lane.top * ratio;
      ctx.fillStyle = style.line;
      ctx.fillRect(bbox.left, top, bbox.width, Math.max(1, ratio));
      lane.rows.forEach((row, number) => drawRow(row, bbox.top + rowTop(lane, number) * ratio));
    }
    ctx.restore();

    function drawRow(row, top) {
      const high = (ROW_HEIGHT - 3) * ratio, points = [];
      let drawnTo = -1, drawnPoint = -1e9;
      for (let i = firstEndingAfter(row, min - (max - min) / 100); i < row.length && row[i][BEGIN] <= max; i++) {
        const item = row[i], left = at(item[BEGIN]);
        const marked = item === chosen || (matches && matches.has(item));
        if (item[LASTED] === POINT) {
          if (left - drawnPoint < 0.7 * ratio && !marked) continue;
          drawnPoint = left;
          points.push([item, left, marked]);
          continue;
        }
        const right = Math.min(at(end(item)), bbox.left + bbox.width + 10);
        if (right < drawnTo + 0.4 * ratio && !marked) continue;
        drawnTo = right;
        drawSpan(item, Math.max(left, bbox.left - 10), right, top, high, marked);
      }
      for (const [item, left, marked] of points) drawPoint(item, left, top + high / 2, marked);
    }

    function drawSpan(item, left, right, top, high, marked) {
      const width = Math.max(right - left, 1.5 * ratio);
      ctx.globalAlpha = matches && !marked ? 0.2 : 1;
      ctx.fillStyle = colour(item);
      ctx.beginPath();
      if (width > 5 * ratio) ctx.roundRect(left, top, width - 0.8 * ratio, high, 2.5 * ratio);
      else ctx.rect(left, top, width, high);
      ctx.fill();
      if (item[LASTED] === UNFINISHED) fade(left, top, width, high);
      if (item === chosen) {
        ctx.strokeStyle = style.ink;
        ctx.lineWidth = 2 * ratio;
        ctx.stroke();
      }
      const from = Math.max(left, bbox.left) + 5 * ratio, room = Math.floor((left + width - from) / letter);
      if (room >= 3) {
        const full = trace.names[item[NAME]];
        const name = full.length <= room ? full : full.slice(full.indexOf(":") + 1);  // rather without its provider
        ctx.fillStyle = "#ffffff";
        ctx.fillText(name.length <= room ? name : `${name.slice(0, room - 1)}…`, from, top + high / 2 + 0.5 * ratio);
      }
      ctx.globalAlpha = 1;
    }

    function fade(left, top, width, high) {  // it goes on beyond the end of the trace
      const from = Math.max(left, left + width - 40 * ratio);
      const gradient = ctx.createLinearGradient(from, 0, left + width, 0);
      gradient.addColorStop(0, "transparent");
      gradient.addColorStop(1, style.panel);
      ctx.fillStyle = gradient;
      ctx.fillRect(from, top, left + width - from, high);
    }

    function drawPoint(item, x, y, marked) {
      const size = (marked ? 6 : 4.5) * ratio;
      ctx.globalAlpha = matches && !marked ? 0.2 : 1;
      ctx.fillStyle = colour(item);
      ctx.strokeStyle = item === chosen ? style.ink : style.panel;
      ctx.lineWidth = (item === chosen ? 2 : 1) * ratio;
      ctx.beginPath();
      ctx.moveTo(x, y - size);
      ctx.lineTo(x + size, y);
      ctx.lineTo(x, y + size);
      ctx.lineTo(x - size, y);
      ctx.closePath();
      ctx.fill();
      ctx.stroke();
      ctx.globalAlpha = 1;
    }
  }

  // --- what the mouse points at --------------------------------------------------------------------------------------

  function itemAt(chart, x, y) {
    const lane = lanes.find((one) => y >= one.top && y < one.top + one.height);
    if (!lane) return null;
    const row = lane.rows[Math.floor((y - rowTop(lane, 0)) / ROW_HEIGHT)];
    if (!row) return null;
    const moment = chart.posToVal(x, "x"), pixel = (chart.scales.x.max - chart.scales.x.min) / chart.over.clientWidth;
    let best = null, nearest = 6 * pixel;
    for (let i = firstEndingAfter(row, moment - nearest); i < row.length && row[i][BEGIN] <= moment + 6 * pixel; i++) {
      const item = row[i];
      const away = Math.max(item[BEGIN] - moment, moment - end(item), item[LASTED] === POINT ? 0 : -pixel);
      if (away < nearest || (away === nearest && item[LASTED] === POINT)) { best = item; nearest = away; }
    }
    return best;
  }

  const lasting = (item) => item[LASTED] === POINT ? "" : item[LASTED] === UNFINISHED ? "did not end" : time(item[LASTED]);
  const threadOf = (item) => {
    const lane = lanes[item[LANE]];
    return `${lane.name ? `${lane.name} ` : ""}${lane.tid}`;
  };

  function element(name, text, parent, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    if (parent) parent.append(made);
    return made;
  }

  function swatch(number, parent) {
    element("span", undefined, parent, "swatch").style.background = COLOURS[number % COLOURS.length];
  }

  const tip = byId("tip");
  function showTip(chart) {
    const { left, top } = chart.cursor;
    const item = left >= 0 && top >= 0 ? itemAt(chart, left, top) : null;
    tip.hidden = !item;
    if (!item) return;
    tip.replaceChildren();
    element("b", trace.names[item[NAME]], tip);
    element("small", [lasting(item), `at ${time(item[BEGIN])}`, `thread ${threadOf(item)}`].filter(Boolean).join(" · "), tip);
    if (item[ARGUMENTS]) element("pre", item[ARGUMENTS], tip);
    const box = chart.over.getBoundingClientRect();
    const x = box.left + left + 14, y = box.top + top + 16;
    tip.style.left = `${Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + tip.offsetHeight > innerHeight ? Math.max(4, y - tip.offsetHeight - 32) : y}px`;
  }

  function choose(item) {
    chosen = item;
    const details = byId("details");
    details.replaceChildren();
    element("h2", item ? trace.names[item[NAME]] : "Details", details);
    if (item) {
      swatch(item[NAME], details.firstChild);
      details.firstChild.prepend(details.firstChild.lastChild);
      const list = element("dl", undefined, details);
      const add = (name, value) => { element("dt", name, list); element("dd", value, list); };
      if (lasting(item)) add("duration", lasting(item));
      add("begins at", `${(item[BEGIN] / 1e9).toFixed(9)} s`);
      add("thread", `${threadOf(item)}, process ${lanes[item[LANE]].pid}`);
      for (const line of item[ARGUMENTS] ? item[ARGUMENTS].split("\n") : []) {
        const cut = line.indexOf(" = ");
        add(line.slice(0, cut), line.slice(cut + 3));
      }
    } else element("p", "Click something in the timeline.", details, "empty");
    main.redraw(false);
  }

  // --- moving --------------------------------------------------------------------------------------------------------

  const least = 20;  // nanoseconds that fill the window
  function show(from, to) {
    const width = Math.min(Math.max(to - from, least), total * 1.02);
    const middle = (from + to) / 2, half = width / 2, margin = total * 0.01;
    const centre = Math.min(Math.max(middle, half - margin), total + margin - half);
    main.setScale("x", { min: centre - half, max: centre + half });
  }

  function zoom(factor, around) {
    const { min, max } = main.scales.x, fixed = around === undefined ? (min + max) / 2 : around;
    show(fixed - (fixed - min) * factor, fixed + (max - fixed) * factor);
  }

  function move(part) {
    const { min, max } = main.scales.x;
    const by = Math.min(Math.max((max - min) * part, -total * 0.01 - min), total * 1.01 - max);
    show(min + by, max + by);
  }

  const showAll = () => show(-total * 0.01, total * 1.01);

  function reveal(item) {
    const { min, max } = main.scales.x, width = Math.max(end(item) - item[BEGIN], (max - min) / 4, least);
    if (item[BEGIN] < min || end(item) > max) show(item[BEGIN] - width, end(item) + width);
    const box = main.over.getBoundingClientRect(), y = box.top + rowTop(lanes[item[LANE]], item[ROW]);
    if (y < 60 || y > innerHeight - 60) scrollBy({ top: y - innerHeight / 2 });
  }

  // --- the two charts ------------------------------------------------------------------------------------------------

  const roomFor = (node) => Math.max(200, node.clientWidth);
  const axis = () => ({
    stroke: () => style.soft, font: "11px system-ui, 'DejaVu Sans', sans-serif", space: 100, size: AXIS, side: 0, align: 1,
    ticks: { stroke: () => style.line, width: 1, size: 5 }, grid: { stroke: () => style.line, width: 1 },
    values: (_, splits, __, ___, step) => moments(splits, step),
  });
  readStyle();
  let overview = null;  // main tells of its window before there is one
  const main = new uPlot({
    width: roomFor(byId("chart")), height: height + AXIS, padding: [0, 0, 0, 0], legend: { show: false },
    scales: { x: { time: false, range: (_, min, max) => [min, max] }, y: { range: [0, 1] } },
    axes: [axis(), { show: false }], series: [{}, { paths: () => null, points: { show: false } }],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 4 }, bind: { dblclick: () => showAll } },
    hooks: { draw: [draw], setCursor: [showTip], setSelect: [selected], setScale: [showWindow] },
  }, [[0, total], [0, 0]], byId("chart"));

  const bins = 600;
  const counts = new Array(bins + 1).fill(0);
  for (const item of items) counts[Math.min(bins, Math.floor(item[BEGIN] / total * bins))]++;
  overview = new uPlot({
    width: roomFor(byId("overview")), height: 56, padding: [6, 0, 0, LABELS], legend: { show: false },
    scales: { x: { time: false, range: () => [-total * 0.01, total * 1.01] }, y: { range: (_, __, max) => [0, max || 1] } },
    axes: [{ show: false }, { show: false }],
    series: [{}, { stroke: () => style.area, fill: () => style.area, width: 1, points: { show: false },
      paths: uPlot.paths.stepped({ align: 1 }) }],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => showAll } },
    hooks: { setSelect: [(chart) => {
      const { left, width } = chart.select;
      if (width > 2) show(chart.posToVal(left, "x"), chart.posToVal(left + width, "x"));
    }] },
  }, [counts.map((_, i) => i / bins * total), counts], byId("overview"));

  function selected(chart) {
    const { left, width } = chart.select;
    chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (width >= 4) show(chart.posToVal(left, "x"), chart.posToVal(left + width, "x"));
  }

  function showWindow(chart, key) {
    if (key !== "x" || !overview) return;
    const left = overview.valToPos(Math.max(chart.scales.x.min, -total * 0.01), "x");
    const right = overview.valToPos(Math.min(chart.scales.x.max, total * 1.01), "x");
    overview.setSelect({ left, width: right - left, top: 0, height: overview.over.clientHeight }, false);
  }

  // --- keys, wheel, buttons, search ------------------------------------------------------------------------------------

  main.over.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.sign(event.deltaY) * 0.25), main.posToVal(main.cursor.left, "x"));
    else move((event.deltaX || event.deltaY) / main.over.clientWidth);
  }, { passive: false });

  let pressed = null;  // where a click or a shift-drag began
  main.root.addEventListener("mousedown", (event) => {
    if (event.button !== 0) return;
    pressed = { x: event.clientX, y: event.clientY, moves: event.shiftKey, last: event.clientX };
    if (event.shiftKey) event.stopPropagation();
  }, true);
  addEventListener("mousemove", (event) => {
    if (!pressed || !pressed.moves) return;
    move((pressed.last - event.clientX) / main.over.clientWidth);
    pressed.last = event.clientX;
  });
  addEventListener("mouseup", (event) => {
    const clicked = pressed && !pressed.moves && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) < 4;
    pressed = null;
    if (!clicked) return;
    const box = main.over.getBoundingClientRect();
    choose(itemAt(main, event.clientX - box.left, event.clientY - box.top));
  });

  const search = byId("wanted");
  let inOrder = [];
  function find() {
    const wanted = search.value.toLowerCase();
    const named = trace.names.map((name) => name.toLowerCase().includes(wanted));
    const isMatch = (item) => named[item[NAME]] || item[ARGUMENTS].toLowerCase().includes(wanted);
    inOrder = wanted ? items.filter(isMatch).sort((one, other) => one[BEGIN] - other[BEGIN]) : [];
    matches = wanted ? new Set(inOrder) : null;
    byId("found").textContent = wanted ? `${inOrder.length.toLocaleString("en")} found` : "";
    for (const row of byId("table").querySelectorAll("tbody tr"))
      row.classList.toggle("chosen", wanted !== "" && row.dataset.name.toLowerCase() === wanted);
    main.redraw(false);
  }

  function step(by) {
    if (!inOrder.length) return;
    const now = inOrder.indexOf(chosen);
    const next = now < 0 ? (by > 0 ? 0 : inOrder.length - 1) : (now + by + inOrder.length) % inOrder.length;
    choose(inOrder[next]);
    reveal(inOrder[next]);
    byId("found").textContent = `${(next + 1).toLocaleString("en")} of ${inOrder.length.toLocaleString("en")}`;
  }

  search.addEventListener("input", find);
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); step(1); });
  byId("previous").addEventListener("click", () => step(-1));
  byId("nearer").addEventListener("click", () => zoom(0.6));
  byId("farther").addEventListener("click", () => zoom(1 / 0.6));
  byId("all").addEventListener("click", showAll);
  addEventListener("keydown", (event) => {
    if (event.target === search) {
      if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); step(-1); }
      if (event.key === "Escape") { search.value = ""; find(); search.blur(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { w: () => zoom(0.7), s: () => zoom(1 / 0.7), a: () => move(-0.15), d: () => move(0.15),
      ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), 0: showAll, Escape: () => choose(null),
      "/": () => { event.preventDefault(); search.focus(); } }[event.key];
    if (act) act();
  });

  // --- the rest of the page ------------------------------------------------------------------------------------------

  byId("heading").textContent = trace.heading ? `Trace of ${trace.heading}` : "Trace";
  byId("facts").textContent = trace.facts.join(" · ");
  for (const note of trace.notes) element("p", `Note: ${note}.`, byId("notes"));
  for (const lane of lanes) {
    const label = element("div", undefined, byId("labels"));
    label.style.height = `${lane.height}px`;
    label.title = `${lane.name} thread ${lane.tid}, process ${lane.pid}`;
    element("b", lane.name || `thread ${lane.tid}`, label);
    element("span", lane.name ? `${lane.tid}${lane.tid === lane.pid ? "" : ` of ${lane.pid}`}` : `process ${lane.pid}`, label);
  }

  const sums = trace.names.map((name, number) => ({ name, number, count: 0, spans: 0, total: 0, most: 0 }));
  for (const item of items) {
    const sum = sums[item[NAME]];
    sum.count++;
    if (item[LASTED] >= 0) { sum.spans++; sum.total += item[LASTED]; sum.most = Math.max(sum.most, item[LASTED]); }
  }
  sums.sort((one, other) => other.total - one.total || other.count - one.count || one.number - other.number);
  const body = byId("table").querySelector("tbody");
  for (const sum of sums.slice(0, 300)) {
    const row = element("tr", undefined, body), first = element("td", undefined, row);
    row.dataset.name = sum.name;
    swatch(sum.number, first);
    first.append(sum.name);
    first.title = sum.name;
    element("td", sum.count.toLocaleString("en"), row);
    for (const value of [sum.total, sum.total / sum.spans, sum.most]) element("td", sum.spans ? time(value) : "–", row);
    row.addEventListener("click", () => {
      search.value = search.value === sum.name ? "" : sum.name;
      find();
    });
  }
  if (sums.length > 300) element("td", `${sums.length - 300} more names`, element("tr", undefined, body));

  function fit() {
    main.setSize({ width: roomFor(byId("chart")), height: height + AXIS });
    overview.setSize({ width: roomFor(byId("overview")), height: 56 });
    showWindow(main, "x");
  }
  addEventListener("resize", fit);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readStyle(); main.redraw(); overview.redraw(); });
  showAll();
  document.documentElement.dataset.ready = "yes";
  window.usdtbuildTrace = { main, overview, items, lanes, chosen: () => chosen, itemAt };  // for tests and the curious
})();
