"use strict";
// Zooming and searching in a flame graph. Names reach the document as text only.
(() => {
  const frames = [...document.querySelectorAll(".frame")].map((group) => {
    const box = group.querySelector("rect"), text = group.querySelector("text");
    const left = +box.getAttribute("x"), width = +box.getAttribute("width");
    return { group, box, text, left, width, top: +box.getAttribute("y"), name: group.dataset.name };
  });
  if (!frames.length) return;
  const all = frames[0], full = all.width, margin = all.left;

  function place(frame, left, width) {
    frame.group.style.display = width < 0.2 ? "none" : "";
    frame.box.setAttribute("x", left);
    frame.box.setAttribute("width", width);
    frame.text.setAttribute("x", left + 3);
    const room = Math.floor((width - 6) / 6.6);
    const cut = room >= 4 ? frame.name.slice(0, room - 2) + ".." : "";
    frame.text.textContent = frame.name.length <= room ? frame.name : cut;
  }

  function zoom(to) {
    const scale = full / to.width, end = to.left + to.width, fuzz = 0.011;
    for (const frame of frames) {
      const holds = frame.top >= to.top && frame.left <= to.left + fuzz && frame.left + frame.width >= end - fuzz;
      const within = frame.left >= to.left - fuzz && frame.left + frame.width <= end + fuzz;
      frame.group.classList.toggle("above", holds && frame !== to && to !== all);
      if (holds) place(frame, margin, full);
      else if (within) place(frame, margin + (frame.left - to.left) * scale, frame.width * scale);
      else frame.group.style.display = "none";
    }
  }

  function search(wanted) {
    let found = 0;
    for (const frame of frames) {
      const matches = wanted !== "" && frame.name.toLowerCase().includes(wanted.toLowerCase());
      frame.group.classList.toggle("found", matches);
      found += matches;
    }
    document.getElementById("matched").textContent = wanted === "" ? "" : `${found} frames match`;
  }

  for (const frame of frames) frame.group.addEventListener("click", () => zoom(frame));
  document.getElementById("reset").addEventListener("click", () => zoom(all));
  document.getElementById("search").addEventListener("click", () => search(prompt("Part of a name:") || ""));
})();
