"use strict";
const zoom = document.getElementById("zoom");
const frames = [...document.querySelectorAll(".scroll")];
zoom.addEventListener("input", () => {
  const factor = 2 ** Number(zoom.value);
  const middles = frames.map(frame => (frame.scrollLeft + frame.clientWidth / 2) / frame.scrollWidth);
  document.documentElement.style.setProperty("--zoom", factor);
  document.documentElement.dataset.step = [4, 16].filter(limit => Math.sign(factor - limit) !== -1).length;
  frames.forEach((frame, index) => { frame.scrollLeft = middles[index] * frame.scrollWidth - frame.clientWidth / 2; });
});
for (const frame of frames) {
  frame.addEventListener("scroll", () => frames.forEach(other => { other.scrollLeft = frame.scrollLeft; }));
}
