// Functions for figures, times and elements. All parts of the script share one scope.

const none = "–";
const thin = "\u202f"; // narrow no-break space
const minus = "\u2212";

const known = (n) => typeof n === "number" && Number.isFinite(n);

// grouped formats a whole number in groups of three digits.
function grouped(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, thin);
}

// rate formats a number per second.
function rate(n) {
  if (!known(n)) return none;
  if (n >= 100 || n === Math.round(n)) return grouped(n);
  return n >= 10 ? n.toFixed(1) : n.toFixed(2);
}

// short formats a number for an axis.
function short(n) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(n) >= size) return +(n / size).toPrecision(3) + thin + unit;
  }
  return String(+n.toPrecision(3));
}

// span formats a time in seconds with three digits: 120 µs, 3.10 ms, 1.20 s.
function span(s, digits = 3) {
  if (!known(s)) return none;
  if (s === 0) return "0" + thin + "s";
  const size = Math.abs(s);
  if (size >= 99.95) return (s < 0 ? minus : "") + long(size);
  const [unit, scale] = size < 0.9995e-6 ? ["ns", 1e9] : size < 0.9995e-3 ? ["µs", 1e6] : size < 0.9995 ? ["ms", 1e3] : ["s", 1];
  const text = (size * scale).toPrecision(digits);
  return (s < 0 ? minus : "") + (text.includes("e") ? grouped(size * scale) : text) + thin + unit;
}

// brief formats a time in seconds for an axis.
function brief(s) {
  const text = span(s);
  return text.replace(/(\.\d*?)0+(?=\D)/, "$1").replace(/\.(?=\D)/, "");
}

function signed(s) {
  if (!known(s)) return none;
  return s === 0 ? brief(0) : (s > 0 ? "+" : "") + span(s, 2);
}

// long formats a time in seconds by its two largest units.
function long(s) {
  s = Math.max(0, Math.floor(s));
  const parts = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"], [Math.floor(s / 60) % 60, "min"], [s % 60, "s"]];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return "0" + thin + "s";
  return parts.slice(first, first + 2).filter(([n], i) => i === 0 || n > 0).map(([n, unit]) => n + thin + unit).join(" ");
}

const ago = (s) => (s < 1 ? "just now" : long(s) + " ago");

function plural(n, one, many = one + "s") {
  return n + " " + (n === 1 ? one : many);
}

// listed joins words: "a", "a and b", "a, b and c".
function listed(words) {
  return words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words.at(-1);
}

function nodes(ids) {
  return (ids.length === 1 ? "node " : "nodes ") + listed(ids.map(String));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const byID = (id) => document.getElementById(id);

// put sets a text only if it changed, so that a screen reader does not repeat it and a
// selection stays.
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

// make returns an element with attributes and children.
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  element.append(...children);
  return element;
}
