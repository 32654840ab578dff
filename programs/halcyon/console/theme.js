// Runs before the page is drawn, so that a chosen colour scheme does not flash.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("halcyon-theme");
  } catch {
    // storage is off: the system's scheme is used
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
