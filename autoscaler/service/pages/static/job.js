// What-if of a job's page: its choice and sliders. Without this file its form does the same.
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
      if (error.name !== "AbortError") form.submit();
    }
  };

  const rounded = (value) => Number(value.toPrecision(2)).toString();

  // Connect a slider, whose scale is logarithmic, and its field. With data-zero its left end is 0.
  const connect = (form, slider) => {
    const range = slider.querySelector("input[type=range]");
    const field = slider.querySelector("input[name]");
    const low = Math.log(Number(range.dataset.low));
    const high = Math.log(Number(range.dataset.high));
    const place = (value) => {
      if (value > 0) range.value = String((100 * (Math.log(value) - low)) / (high - low));
      else if (value === 0 && "zero" in range.dataset) range.value = "0";
    };
    const valueAt = (position) =>
      position === 0 && "zero" in range.dataset
        ? "0"
        : rounded(Math.exp(low + ((high - low) * position) / 100));
    const tell = () => range.setAttribute("aria-valuetext", field.value);
    place(Number(field.value));
    tell();
    range.addEventListener("input", () => {
      field.value = valueAt(Number(range.value));
      tell();
      redraw(form, field);
    });
    field.addEventListener("change", () => {
      place(Number(field.value));
      tell();
    });
  };

  for (const form of document.querySelectorAll("form[data-what-if]")) {
    const chosen = () => form.querySelector(`#${form.elements.assume.value}`);
    for (const slider of form.querySelectorAll(".slider")) connect(form, slider);
    for (const choice of form.elements.assume)
      choice.addEventListener("change", () => redraw(form, chosen()));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      redraw(form, chosen());
    });
  }
})();
