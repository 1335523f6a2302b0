"use strict";
// Returns the red, green, blue and opacity of a color in a computed style.
function channels(color) {
  const numbers = color.match(/[\d.]+/g).map(Number);
  return numbers.length > 3 ? numbers : [...numbers, 1];
}
// The relative luminance of a color, and the contrast of two (WCAG 2.1, 1.4.3).
function luminance(color) {
  const [r, g, b] = channels(color).map((c) => {
    const part = c / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
function background(element, view) {
  for (let at = element; at; at = at.parentElement) {
    const color = view.getComputedStyle(at).backgroundColor;
    if (channels(color)[3] > 0) return color;
  }
  return "rgb(255, 255, 255)";
}
function measure(frame) {
  const doc = frame.contentDocument, view = frame.contentWindow;
  const style = (element) => view.getComputedStyle(element);
  const result = { texts: 0, faint: [], small: [], outside: [], overlapping: [], unnamed: [] };
  result.paper = style(doc.body).backgroundColor;
  result.width = doc.documentElement.clientWidth;
  result.needed = doc.documentElement.scrollWidth;
  result.figures = doc.querySelectorAll("svg.figure").length;
  const judge = (element, color, behind) => {
    const text = element.textContent.trim().slice(0, 60);
    result.texts += 1;
    const ratio = contrast(color, behind);
    if (ratio < 4.5) result.faint.push(`${text}: ${ratio.toFixed(2)}, ${color} on ${behind}`);
    if (parseFloat(style(element).fontSize) < 10.9) result.small.push(text);
  };
  for (const element of doc.body.querySelectorAll("*:not(svg):not(svg *)")) {
    const has = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (has) judge(element, style(element).color, background(element, view));
  }
  for (const figure of doc.querySelectorAll("svg.figure")) {
    const [title, text] = ["title", "desc"].map((name) => figure.querySelector(`:scope > ${name}`));
    const ids = (figure.getAttribute("aria-labelledby") || "").split(" ");
    const named = figure.getAttribute("role") === "img" && title.textContent && text.textContent;
    if (!named || title.id !== ids[0] || text.id !== ids[1]) result.unnamed.push(title.textContent);
    const frame = figure.getBoundingClientRect(), boxes = [];
    for (const text of figure.querySelectorAll("text")) {
      const bar = text.closest(".bar");
      const behind = bar ? style(bar.querySelector("rect")).fill : background(figure, view);
      judge(text, style(text).fill, behind);
      const box = text.getBoundingClientRect();
      const around = bar ? bar.querySelector("rect").getBoundingClientRect() : frame;
      const name = `${title.textContent}: ${text.textContent}`;
      const apart = box.left < around.left - 1 || box.right > around.right + 1;
      if (apart || box.bottom > around.bottom + 2) result.outside.push(name);
      if (!bar && text.textContent) boxes.push([name, box]);
    }
    boxes.forEach(([name, a], place) => {
      for (const [other, b] of boxes.slice(place + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 4) result.overlapping.push(`${name} and ${other}`);
      }
    });
  }
  return result;
}
window.onload = () => {
  const frames = [...document.querySelectorAll("iframe")];
  const found = JSON.stringify(frames.map(measure));
  const place = document.createElement("pre");
  // In two parts, because this script is in the document, too.
  place.textContent = ["@@measured", found, "measured@@"].join(" ");
  document.body.append(place);
};
