// The only script of the page: it replaces the live part by events, moves through rows by keys, and reads dropped files.
"use strict";
(() => {
  const live = document.getElementById("live");
  const line = document.getElementById("line");
  const rows = () => [...document.querySelectorAll("[data-row]")];

  // Updates keep the focus, the scroll positions and opened details. They wait while text is selected.
  const replace = (html) => {
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    const places = [...live.querySelectorAll("[data-scroll]")].map((n) => [n.id, n.scrollLeft, n.scrollTop]);
    const opened = [...live.querySelectorAll("details")].map((d) => d.open);
    live.innerHTML = html; // the server has escaped every name
    for (const [id, left, top] of places) {
      const n = document.getElementById(id);
      if (n) n.scrollTo(left, top);
    }
    const now = live.querySelectorAll("details");
    if (now.length === opened.length) now.forEach((d, i) => { d.open = opened[i]; });
    const again = focused && document.getElementById(focused);
    if (again) again.focus({ preventScroll: true });
  };
  let waiting = null;
  const selecting = () => {
    const s = document.getSelection();
    return s && !s.isCollapsed && live.contains(s.anchorNode);
  };
  const flush = () => {
    if (waiting === null || selecting()) return;
    const html = waiting;
    waiting = null;
    replace(html);
  };
  if (live.dataset.events) {
    const events = new EventSource(live.dataset.events);
    events.addEventListener("view", (e) => { waiting = e.data; flush(); });
    events.onopen = () => { line.textContent = "live"; };
    events.onerror = () => { line.textContent = "not connected: the state is old"; };
    document.addEventListener("selectionchange", flush);
    window.addEventListener("pagehide", () => events.close());
  }

  const move = (step) => {
    const list = rows();
    if (!list.length) return;
    const at = list.indexOf(document.activeElement);
    const to = list[Math.min(Math.max(at < 0 ? (step > 0 ? 0 : list.length - 1) : at + step, 0), list.length - 1)];
    to.focus();
    to.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select")) return;
    const onRow = rows().includes(document.activeElement);
    const links = document.querySelectorAll("nav a");
    if (e.key === "j" || (e.key === "ArrowDown" && onRow)) move(1);
    else if (e.key === "k" || (e.key === "ArrowUp" && onRow)) move(-1);
    else if (e.key === "/" && document.getElementById("text")) document.getElementById("text").focus();
    else if (e.key >= "1" && e.key <= String(links.length)) links[Number(e.key) - 1].click();
    else return;
    e.preventDefault();
  });

  const drop = document.querySelector("[data-drop]");
  if (drop) {
    const read = async (file) => { if (file) drop.value = await file.text(); };
    document.addEventListener("dragover", (e) => { e.preventDefault(); drop.classList.add("over"); });
    document.addEventListener("dragleave", () => drop.classList.remove("over"));
    document.addEventListener("drop", (e) => {
      e.preventDefault();
      drop.classList.remove("over");
      const text = e.dataTransfer.getData("text");
      if (e.dataTransfer.files.length) read(e.dataTransfer.files[0]);
      else if (text) drop.value = text;
    });
    document.getElementById("file").addEventListener("change", (e) => read(e.target.files[0]));
  }
  const rule = document.getElementById("rule");
  if (rule && location.hash === "#rule") rule.scrollIntoView({ block: "center" });
})();
