
// The history of leaders: a lane for each member, and a logarithmic axis of age, which shows
// both the last election and those of last week.

const laneHeight = 22;
const laneLabel = 58;
const ageSoon = 5; // s; around there the axis turns from linear to logarithmic
const ageTicks = [[0, "now"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [6 * 3600, "6 h"], [86400, "1 d"], [7 * 86400, "7 d"], [30 * 86400, "30 d"]];

class Timeline {
  constructor(element, text) {
    this.element = element;
    this.text = text;
    this.svg = draw("svg", { "aria-hidden": "true", focusable: "false" });
    element.append(this.svg);
    this.width = 0;
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      if (this.view) this.draw(this.view);
    }).observe(element);
  }

  draw(view) {
    this.view = view;
    const { elections, members, leader } = view;
    const ids = [...new Set([...members.map((m) => m.id), ...elections.map((e) => e.leader)])].filter((id) => id > 0).sort((a, b) => a - b);
    if (this.width < 120) return;
    const height = ids.length * laneHeight + 22;
    const oldest = Math.max(60, (elections[0]?.age ?? 0) * 1.3);
    const x = (age) => this.width - 2 - Math.log1p(age / ageSoon) / Math.log1p(oldest / ageSoon) * (this.width - laneLabel - 2);
    const parts = [];
    ids.forEach((id, lane) => {
      const y = lane * laneHeight + laneHeight / 2 + 0.5;
      parts.push(draw("text", { class: "lane" + (id === leader && view.lostAge === 0 ? " on" : ""), x: 0, y: y + 4 }, "Node " + id));
      parts.push(draw("line", { class: "rule", x1: laneLabel, x2: this.width, y1: y, y2: y }));
    });
    let edge = Infinity;
    for (const [age, label] of ageTicks) {
      if (age > oldest) break;
      const at = x(age), half = age === 0 ? 30 : 22;
      if (at + (age === 0 ? 0 : half) > edge || at - half < laneLabel - 10) continue;
      edge = at - half;
      parts.push(draw("line", { class: "rule", x1: at, x2: at, y1: 4, y2: height - 18 }));
      parts.push(draw("text", { class: "tick", x: at, y: height - 3, "text-anchor": age === 0 ? "end" : "middle" }, label.replace(" ", thin)));
    }
    elections.forEach((e, i) => {
      const next = elections[i + 1];
      const end = next ? next.age + (next.gap ?? 0) : Math.min(e.age, view.lostAge);
      const leads = !next && leader === e.leader && view.lostAge === 0;
      const left = x(e.age), right = Math.max(left + 2, x(Math.min(end, e.age)));
      const y = ids.indexOf(e.leader) * laneHeight + 6;
      parts.push(draw("rect", { class: leads ? "reign on" : "reign", x: left, y, width: right - left, height: laneHeight - 12, rx: 2 }));
      if (e.gap > 0) {
        const from = x(e.age + e.gap);
        parts.push(draw("rect", { class: "gap", x: Math.min(from, left - 2), y: 2, width: Math.max(2, left - from), height: height - 22 }));
      }
    });
    if (view.lostAge > 0) parts.push(draw("rect", { class: "gap", x: x(view.lostAge), y: 2, width: Math.max(2, x(0) - x(view.lostAge)), height: height - 22 }));
    set(this.svg, "viewBox", `0 0 ${this.width} ${height}`);
    set(this.svg, "width", this.width);
    set(this.svg, "height", height);
    this.svg.replaceChildren(...parts);
    const last = elections.at(-1);
    put(this.text, last ? `${plural(elections.length, "change")} of leader known. The latest made node ${last.leader} leader in term ${last.term}.` : "No change of leader is known.");
  }
}
