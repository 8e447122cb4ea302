"use strict";
// Draws the graphs of #data as SVG, in layers; shows a step's details; searches; zooms.
(() => {
  const graphs = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const WIDTH = 210, HEIGHT = 46, GAP_X = 24, GAP_Y = 40;

  function make(name, attributes = {}, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  }

  // A node stands one layer below the last that it reads; an input above its first reader.
  function place(graph) {
    const layer = graph.nodes.map(() => 0);
    for (const [from, to] of graph.edges) layer[to] = Math.max(layer[to], layer[from] + 1); // edges come in the order of steps
    graph.nodes.forEach((node, at) => {
      if (node.kind !== "input") return;
      const readers = graph.edges.filter(([from]) => from === at).map(([, to]) => layer[to]);
      if (readers.length) layer[at] = Math.max(0, Math.min(...readers) - 1);
    });
    const rows = [];
    layer.forEach((row, at) => (rows[row] = rows[row] || []).push(at));
    const spots = [];
    rows.forEach((row, y) => {
      // Below what it reads: the mean of where that stands.
      const wish = (at) => {
        const xs = graph.edges.filter(([, to]) => to === at).map(([from]) => (spots[from] || { x: 0 }).x);
        return xs.length ? xs.reduce((sum, x) => sum + x, 0) / xs.length : 0;
      };
      const order = row.map((at) => [wish(at), at]).sort((one, other) => one[0] - other[0] || one[1] - other[1]);
      const start = order.reduce((sum, [x]) => sum + x, 0) / order.length - ((order.length - 1) * (WIDTH + GAP_X)) / 2;
      order.forEach(([, at], number) => (spots[at] = { x: start + number * (WIDTH + GAP_X), y: y * (HEIGHT + GAP_Y) }));
    });
    return spots;
  }

  // Shortens drawn text to its box: how wide its characters are depends on the browser's font.
  function shorten(element) {
    const text = element.textContent, width = element.getComputedTextLength(), room = WIDTH - 16;
    if (width > room) element.textContent = text.slice(0, Math.floor(text.length * room / width) - 1) + "…";
  }

  function draw(graph, canvas) {
    const spots = place(graph);
    if (!spots.length) return;
    const svg = make("svg", { role: "img", "aria-label": `graph ${graph.number}` });
    const all = make("g");
    for (const [from, to, shape] of graph.edges) {
      const a = spots[from], b = spots[to], x1 = a.x + WIDTH / 2, x2 = b.x + WIDTH / 2, y1 = a.y + HEIGHT, y2 = b.y;
      const path = make("path", { class: "edge", d: `M${x1},${y1} C${x1},${y1 + GAP_Y / 2} ${x2},${y2 - GAP_Y / 2} ${x2},${y2}` });
      path.append(make("title", {}, shape));
      all.append(path);
    }
    graph.nodes.forEach((node, at) => {
      const group = make("g", { class: `node ${node.kind}`, transform: `translate(${spots[at].x},${spots[at].y})`, tabindex: 0,
        "data-graph": graph.number, "data-node": at });
      group.append(make("title", {}, [node.name, node.ops, node.places, node.shape].filter(Boolean).join("\n")));
      group.append(make("rect", { width: WIDTH, height: HEIGHT, rx: 6 }));
      group.append(make("text", { x: 8, y: 19 }, node.ops || node.name));
      group.append(make("text", { x: 8, y: 36, class: "small" }, [node.shape, node.bytes].filter(Boolean).join("  ")));
      group.addEventListener("click", () => show(graph.number, at));
      group.addEventListener("keydown", (event) => event.key === "Enter" && show(graph.number, at));
      all.append(group);
    });
    svg.append(all);
    canvas.append(svg);
    canvas.classList.add("drawn");
    svg.querySelectorAll(".node text").forEach(shorten);
    const xs = spots.map((spot) => spot.x), ys = spots.map((spot) => spot.y);
    const box = { x: Math.min(...xs) - 20, y: Math.min(...ys) - 20, w: Math.max(...xs) - Math.min(...xs) + WIDTH + 40, h: Math.max(...ys) - Math.min(...ys) + HEIGHT + 40 };
    zoomable(svg, canvas, box);
  }

  function zoomable(svg, canvas, box) {
    let view;
    const apply = () => svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    const fit = () => {
      const ratio = canvas.clientWidth / Math.max(1, canvas.clientHeight);
      // Readable, so a long graph begins at its top.
      const w = Math.min(Math.max(box.w, canvas.clientWidth), canvas.clientWidth * 1.6), h = w / ratio;
      view = { x: box.x + (box.w - w) / 2, y: h > box.h ? box.y - (h - box.h) / 2 : box.y, w, h };
      apply();
    };
    const zoom = (times, x = 0.5, y = 0.5) => {
      view = { x: view.x + view.w * x * (1 - times), y: view.y + view.h * y * (1 - times), w: view.w * times, h: view.h * times };
      apply();
    };
    const at = (event) => {
      const area = svg.getBoundingClientRect();
      return [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height];
    };
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, ...at(event));
    }, { passive: false });
    let last = null;
    svg.addEventListener("pointerdown", (event) => { last = [event.clientX, event.clientY]; });
    window.addEventListener("pointerup", () => { last = null; });
    svg.addEventListener("pointermove", (event) => {
      if (!last) return;
      const area = svg.getBoundingClientRect();
      view.x -= ((event.clientX - last[0]) / area.width) * view.w;
      view.y -= ((event.clientY - last[1]) / area.height) * view.h;
      last = [event.clientX, event.clientY];
      apply();
    });
    const bar = document.createElement("div");
    bar.className = "zoom";
    for (const [label, title, act] of [["+", "Zoom in", () => zoom(1 / 1.3)], ["−", "Zoom out", () => zoom(1.3)], ["Fit", "Show all", () => {
      const ratio = canvas.clientWidth / Math.max(1, canvas.clientHeight), w = Math.max(box.w, box.h * ratio);
      view = { x: box.x + (box.w - w) / 2, y: box.y - (w / ratio - box.h) / 2, w, h: w / ratio };
      apply();
    }]]) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: label, title, onclick: act });
      bar.append(button);
    }
    canvas.append(bar);
    fit();
  }

  function show(number, at) {
    const node = graphs[number].nodes[at];
    document.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
    const drawn = document.querySelector(`.node[data-graph="${number}"][data-node="${at}"]`);
    if (drawn) drawn.classList.add("chosen");
    byId("title").textContent = `${node.name} (${node.kind})`;
    const rows = [["operators", node.ops], ["where", node.places], ["result", node.shape], ["reads", (node.reads || []).join(", ")],
      ["bytes", node.bytes], ["operations", node.flops === undefined ? "" : node.flops.toLocaleString("en")],
      ["time", node.seconds === undefined ? "" : `${(node.seconds * 1e3).toFixed(3)} ms`], ["schedule", node.schedule], ["reason", node.reason]];
    const list = byId("properties");
    list.replaceChildren();
    for (const [name, value] of rows) {
      if (!value) continue;
      const term = document.createElement("dt"), said = document.createElement("dd");
      term.textContent = name;
      said.textContent = value;
      list.append(term, said);
    }
    const code = byId("code"), word = byId("search").value.trim();
    code.replaceChildren();
    for (const [name, text] of Object.entries(node.code || {})) {
      const part = document.createElement("div"), title = document.createElement("h3"), pre = document.createElement("pre");
      title.textContent = name;
      marked(pre, text, word);
      part.append(title, pre);
      code.append(part);
    }
    byId("details").hidden = false;
  }

  function marked(into, text, word) {
    const low = text.toLowerCase(), wanted = word.toLowerCase();
    let from = 0;
    for (let at = wanted ? low.indexOf(wanted) : -1, count = 0; at >= 0 && count < 500; at = low.indexOf(wanted, from), ++count) {
      const mark = document.createElement("mark");
      mark.textContent = text.slice(at, at + wanted.length);
      into.append(text.slice(from, at), mark);
      from = at + wanted.length;
    }
    into.append(text.slice(from));
  }

  function search() {
    const word = byId("search").value.trim().toLowerCase();
    let count = 0;
    const hits = new Set();
    for (const graph of graphs)
      graph.nodes.forEach((node, at) => {
        const text = [node.name, node.ops, node.places, node.shape, node.schedule, node.reason, ...Object.values(node.code || {})].join("\n");
        if (!word || text.toLowerCase().includes(word)) {
          hits.add(`${graph.number}/${at}`);
          if (word) ++count;
        }
      });
    document.querySelectorAll("[data-node]").forEach((one) => {
      const hit = hits.has(`${one.dataset.graph}/${one.dataset.node}`);
      if (one.tagName.toLowerCase() === "tr") one.hidden = !hit;
      else one.classList.toggle("faded", !hit);
    });
    byId("found").textContent = word ? (count === 1 ? "1 step" : `${count} steps`) : "";
  }

  document.querySelectorAll(".canvas").forEach((canvas) => draw(graphs[Number(canvas.dataset.graph)], canvas));
  document.querySelectorAll("tr[data-node]").forEach((row) =>
    row.addEventListener("click", () => show(Number(row.dataset.graph), Number(row.dataset.node))));
  byId("search").addEventListener("input", search);
  byId("close").addEventListener("click", () => { byId("details").hidden = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") byId("details").hidden = true; });
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  });
})();
