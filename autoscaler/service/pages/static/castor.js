// Keys, live updates and dialogs of Castor's pages. Every page works without this file.
"use strict";
(() => {
  const LEAST_REFRESH_MILLISECONDS = 1500;
  const page = document.body;

  // Live updates: the controller says that something changed, and the page asks for its live part
  // again. A hidden tab closes its stream, since browsers open few connections to one host.
  let stream = null;
  let refreshed = 0;
  let timer = 0;

  const say = (key) => {
    const line = document.getElementById("connection");
    if (line && line.dataset[key]) line.textContent = line.dataset[key];
  };

  const refresh = () => {
    timer = 0;
    refreshed = Date.now();
    if (document.querySelector("[data-refreshes]")) page.dispatchEvent(new Event("changed"));
  };

  const changed = () => {
    if (timer || document.hidden) return;
    const wait = Math.max(0, LEAST_REFRESH_MILLISECONDS - (Date.now() - refreshed));
    timer = setTimeout(refresh, wait);
  };

  const listen = () => {
    if (stream || !page.dataset.events || !document.querySelector("[data-refreshes]")) return;
    stream = new EventSource(page.dataset.events);
    stream.addEventListener("open", () => say("live"));
    stream.addEventListener("changed", changed);
    stream.addEventListener("error", () => say("away"));
  };

  const stopListening = () => {
    if (stream) stream.close();
    stream = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stopListening();
    else listen();
  });
  window.addEventListener("pagehide", stopListening);
  listen();

  // Keys.
  const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]");
  const rows = () => [...document.querySelectorAll("[data-row] a.row, a[data-row]")];
  let awaitsPlace = false;

  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(document.activeElement);
    const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step;
    const row = all[Math.min(Math.max(next, 0), all.length - 1)];
    row.focus();
    row.scrollIntoView({ block: "nearest" });
  };

  const open = (name) => {
    const dialog = document.getElementById(name);
    if (dialog && dialog.showModal && !dialog.open) dialog.showModal();
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const place = awaitsPlace && document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    awaitsPlace = false;
    if (place) place.click();
    else if (event.key === "/") document.getElementById("search")?.focus();
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") open("keys");
    else if (event.key === "g") awaitsPlace = true;
    else return;
    event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    if (opener) open(opener.dataset.opens);
  });

  for (const part of document.querySelectorAll(".only-scripts")) part.hidden = false;
})();
