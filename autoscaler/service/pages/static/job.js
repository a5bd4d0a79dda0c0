// Sliders of the what-if of a job's page. Without this file its forms do the same.
"use strict";
(() => {
  let latest = null;

  const redraw = async (form, field) => {
    if (latest) latest.abort();
    latest = new AbortController();
    const query = new URLSearchParams({ [field.name]: field.value });
    try {
      const reply = await fetch(`${form.dataset.whatIf}?${query}`, {
        signal: latest.signal,
        headers: { Accept: "text/html" },
      });
      const text = await reply.text();
      const part = new DOMParser().parseFromString(text, "text/html").getElementById("assumed");
      const shown = document.getElementById("assumed");
      if (part && shown) shown.replaceWith(document.adoptNode(part));
      history.replaceState(null, "", `${location.pathname}?${query}#what-if`);
    } catch (error) {
      if (error.name !== "AbortError") form.requestSubmit();
    }
  };

  const rounded = (value) => Number(value.toPrecision(2)).toString();

  for (const form of document.querySelectorAll("form[data-what-if]")) {
    const range = form.querySelector("input[type=range]");
    const field = form.querySelector("input[name]");
    const low = Math.log(Number(range.dataset.low));
    const high = Math.log(Number(range.dataset.high));
    const place = (value) => {
      if (value > 0) range.value = String((100 * (Math.log(value) - low)) / (high - low));
    };
    const tell = () => range.setAttribute("aria-valuetext", field.value);
    place(Number(field.value) || Number(range.dataset.value));
    tell();
    range.addEventListener("input", () => {
      field.value = rounded(Math.exp(low + ((high - low) * Number(range.value)) / 100));
      tell();
      redraw(form, field);
    });
    field.addEventListener("change", () => {
      place(Number(field.value));
      tell();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      redraw(form, field);
    });
  }
})();
