
// Charts of the last five minutes, as SVG, which is sharp at any resolution and gets its
// colours from the style sheet. All charts share one cursor, which the pointer and the arrow
// keys move.

const plotHeight = 150;
const room = { top: 14, right: 46, bottom: 20, left: 0 }; // the axis is at the right, beside the latest figures

const cursor = {
  second: null, // 0 is the latest, 299 the oldest; null is none
  changed: () => {},
  move(second) {
    second = second === null ? null : Math.max(0, Math.min(chartSeconds - 1, Math.round(second)));
    if (second !== this.second) {
      this.second = second;
      this.changed();
    }
  },
};

class Chart {
  // spec: title, log, format, axis, lines [{key, name, kind}]; kind is main or edge.
  constructor(spec) {
    this.spec = spec;
    const id = "chart-" + spec.id;
    this.values = spec.lines.map((line) => {
      const value = make("span", { class: "value" });
      return { line, value, whole: make("span", { class: "figure " + line.kind }, ...(line.name ? [make("span", { class: "name" }, line.name)] : []), value) };
    });
    this.when = make("span", { class: "when", "aria-hidden": "true" });
    this.svg = draw("svg", { "aria-hidden": "true", focusable: "false" });
    this.plot = make("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-labelledby": id, "aria-describedby": id + "-text",
      "aria-orientation": "horizontal", "aria-valuemin": -(chartSeconds - 1), "aria-valuemax": 0,
    }, this.svg);
    this.text = make("p", { class: "hidden", id: id + "-text" });
    this.element = make("section", { class: "chart", "aria-labelledby": id },
      make("div", { class: "head" }, make("h2", { id }, spec.title), this.when), make("p", { class: "now" }, ...this.values.map((v) => v.whole)), this.plot, this.text);
    this.width = 0;
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      if (this.data) this.draw(this.data, this.marks);
    }).observe(this.plot);
    this.listen();
  }

  listen() {
    const pick = (event) => {
      const box = this.plot.getBoundingClientRect();
      const share = (event.clientX - box.left - room.left) / (box.width - room.left - room.right);
      cursor.move((1 - share) * (chartSeconds - 1));
    };
    this.plot.addEventListener("pointermove", pick);
    this.plot.addEventListener("pointerdown", pick);
    this.plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && cursor.move(null));
    this.plot.addEventListener("blur", () => cursor.move(null));
    this.plot.addEventListener("keydown", (event) => {
      const at = cursor.second ?? 0;
      const to = {
        ArrowLeft: at + 1, ArrowDown: at + 1, ArrowRight: at - 1, ArrowUp: at - 1,
        PageDown: at + 30, PageUp: at - 30, Home: chartSeconds - 1, End: 0, Escape: null,
      }[event.key];
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      cursor.move(to);
    });
  }

  // draw shows data, an object of arrays by key, and marks, the changes of leader.
  draw(data, marks) {
    this.data = data;
    this.marks = marks;
    this.read();
    if (this.width < 40) return;
    set(this.svg, "viewBox", `0 0 ${this.width} ${plotHeight}`);
    set(this.svg, "width", this.width);
    set(this.svg, "height", plotHeight);
    const scale = this.scale();
    const parts = [...this.grid(scale), ...this.leaders()];
    const lines = this.spec.lines.map((line) => data[line.key].map((n) => (n === null ? null : scale.y(n))));
    const floor = lines.length > 1 ? lines[1] : lines[0].map(() => scale.floor);
    parts.push(draw("path", { class: "area", d: this.area(lines[0], floor) }));
    lines.forEach((ys, i) => parts.push(draw("path", { class: "line " + this.spec.lines[i].kind, d: this.path(ys) })));
    if (cursor.second !== null) {
      const x = this.x(cursor.second);
      parts.push(draw("line", { class: "cursor", x1: x, x2: x, y1: room.top - 6, y2: plotHeight - room.bottom }));
      for (const ys of lines) {
        const y = ys[chartSeconds - 1 - cursor.second];
        if (y !== null) parts.push(draw("circle", { class: "point", cx: x, cy: y, r: 3.5 }));
      }
    }
    this.svg.replaceChildren(...parts);
  }

  x(second) {
    return room.left + (1 - second / (chartSeconds - 1)) * (this.width - room.left - room.right);
  }

  scale() {
    const all = this.spec.lines.flatMap((line) => this.data[line.key]).filter((n) => n !== null && (!this.spec.log || n > 0));
    const top = room.top, bottom = plotHeight - room.bottom;
    if (this.spec.log) return this.logScale(all, top, bottom);
    const high = Math.max(this.spec.least, ...all), low = Math.min(0, ...all);
    const raw = (high - low) / 3, size = 10 ** Math.floor(Math.log10(raw));
    const step = size * [1, 2, 5, 10].find((n) => n * size >= raw);
    const first = Math.floor(low / step + 1e-9) * step, last = Math.ceil(high / step - 1e-9) * step;
    const ticks = [];
    for (let n = first; n <= last + step / 2; n += step) ticks.push(Math.abs(n) < step / 1e6 ? 0 : n);
    const y = (n) => bottom - (n - first) / (last - first) * (bottom - top);
    return { ticks, floor: y(0), y };
  }

  // logScale spans at least a decade, with ticks at the powers of ten, or if those are few,
  // also at 2 and 5 times them.
  logScale(all, top, bottom) {
    let low = Math.log10(all.length ? Math.min(...all) : 1e-4) - 0.12, high = Math.log10(all.length ? Math.max(...all) : 1e-2) + 0.05;
    const missing = 1 - (high - low);
    if (missing > 0) {
      low -= missing / 2;
      high += missing / 2;
    }
    const digits = high - low < 1.7 ? [1, 2, 5] : [1], every = Math.ceil((high - low) / 4), ticks = [];
    for (let p = Math.floor(low); p <= high; p += every) {
      for (const d of digits) if (Math.log10(d) + p > low && Math.log10(d) + p < high) ticks.push(d * 10 ** p);
    }
    return { ticks, floor: bottom, y: (n) => bottom - (Math.max(low, Math.log10(n)) - low) / (high - low) * (bottom - top) };
  }

  grid(scale) {
    const right = this.width - room.right, parts = [];
    for (const n of scale.ticks) {
      const y = Math.round(scale.y(n)) + 0.5;
      parts.push(draw("line", { class: "rule", x1: room.left, x2: right, y1: y, y2: y }));
      parts.push(draw("text", { class: "tick", x: right + 7, y: y + 3.5 }, this.spec.axis(n)));
    }
    for (const m of this.width < 200 ? [0, 3] : this.width < 480 ? [0, 2, 4] : [0, 1, 2, 3, 4]) {
      const x = Math.round(this.x(m * 60)) + 0.5;
      parts.push(draw("line", { class: "notch", x1: x, x2: x, y1: plotHeight - room.bottom, y2: plotHeight - room.bottom + 4 }));
      parts.push(draw("text", { class: "tick", x, y: plotHeight - 3, "text-anchor": "middle" }, m === 0 ? "now" : m + thin + "min"));
    }
    return parts;
  }

  // leaders marks the changes of leader. Where they are close, only the later one has a label.
  leaders() {
    let edge = Infinity;
    return this.marks.filter((mark) => mark.age < chartSeconds - 1).reverse().flatMap((mark) => {
      const x = Math.round(this.x(mark.age)) + 0.5;
      const parts = [draw("line", { class: "mark", x1: x, x2: x, y1: room.top - 4, y2: plotHeight - room.bottom })];
      const label = "node " + mark.leader, half = label.length * 3.5 + 2; // pixels of a wide font
      if (this.spec.named && x + half < edge) {
        edge = x - half;
        parts.push(draw("text", { class: "tick leader", x, y: room.top - 5, "text-anchor": "middle" }, label));
      }
      return parts;
    });
  }

  path(ys) {
    let d = "", pen = false;
    ys.forEach((y, i) => {
      if (y !== null) d += (pen ? "L" : "M") + this.x(chartSeconds - 1 - i).toFixed(1) + " " + y.toFixed(1);
      if (y !== null && !pen && (ys[i + 1] ?? null) === null) d += "h.1"; // a lone point shows as a dot
      pen = y !== null;
    });
    return d;
  }

  area(ys, floors) {
    let d = "", run = [];
    const end = () => {
      if (run.length > 1) {
        const point = (i, y) => this.x(chartSeconds - 1 - i).toFixed(1) + " " + y.toFixed(1);
        d += "M" + run.map((i) => point(i, ys[i])).join("L") + "L" + run.reverse().map((i) => point(i, floors[i])).join("L") + "Z";
      }
      run = [];
    };
    ys.forEach((y, i) => (y === null || floors[i] === null ? end() : run.push(i)));
    end();
    return d;
  }

  // read shows the figures at the cursor, or the latest ones.
  read() {
    const second = cursor.second ?? 0;
    const figures = this.values.map(({ line, value }) => {
      const n = this.data[line.key][chartSeconds - 1 - second];
      put(value, n === null ? none : this.spec.format(n));
      return (line.name ? line.name + " " : "") + (n === null ? "none" : this.spec.format(n));
    });
    const when = second === 0 ? "now" : long(second) + " ago";
    put(this.when, cursor.second === null ? "" : `${Math.floor(second / 60)}:${String(second % 60).padStart(2, "0")} ago`);
    set(this.plot, "aria-valuenow", -second);
    set(this.plot, "aria-valuetext", when + ": " + figures.join(", "));
    if (now() - (this.described ?? -Infinity) > 10000) {
      this.described = now();
      put(this.text, this.describe());
    }
  }

  // describe returns the text alternative of the chart.
  describe() {
    const parts = this.spec.lines.map((line) => {
      const all = this.data[line.key].filter((n) => n !== null);
      const name = line.name ? line.name + " " : "";
      return all.length === 0 ? name + "no data yet" : `${name}from ${this.spec.format(Math.min(...all))} to ${this.spec.format(Math.max(...all))}`;
    });
    return `Last five minutes: ${parts.join("; ")}. Arrow keys read out single seconds.`;
  }
}
