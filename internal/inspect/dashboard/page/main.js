
// The page: links to all members, and one view of them, redrawn when something changes.

const linksMax = 9; // members that the page reads; limits the connections of one page
const hiddenMax = 60000; // ms; a page hidden for longer closes its connections

const links = [];
const rateSpec = { format: rate, axis: short, least: 4 };
const charts = [
  new Chart({ id: "timestamps", title: "Timestamps per second", named: true, ...rateSpec, lines: [{ key: "timestampsPerSecond", kind: "main" }] }),
  new Chart({ id: "latency", title: "Latency", log: true, format: span, axis: brief, lines: [{ key: "p99", name: "p99", kind: "edge" }, { key: "p50", name: "p50", kind: "main" }] }),
  new Chart({ id: "ids", title: "IDs per second", ...rateSpec, lines: [{ key: "idsPerSecond", kind: "main" }] }),
  new Chart({ id: "lead", title: "Lead over clock", format: (n) => (n < 0 ? "behind " + span(-n, 2) : span(n, 2)), axis: brief, least: 0.01, lines: [{ key: "leadSeconds", kind: "main" }] }),
];
byID("charts").append(...charts.map((chart) => chart.element));
const timeline = new Timeline(byID("lanes"), byID("lanes-text"));

let lostAt = null; // since when no leader answers

function connect(base) {
  links.push(new Link(base, changed));
}

function changed(link) {
  if (link.state) gather(link);
  schedule();
}

// gather keeps exactly one link to every member. The first link, to the server of the page,
// stays.
function gather(link) {
  const twin = links.find((l) => l !== link && l.node === link.node);
  if (twin) {
    const extra = link === links[0] ? twin : link;
    drop(extra);
    if (extra === link) return;
  }
  const view = look(links);
  if (!view.newest) return;
  const linked = new Set(links.flatMap((l) => (l.node ? [l.node] : [])));
  for (const m of view.members) {
    const base = location.protocol + "//" + m.addr;
    if (!linked.has(m.id) && links.length < linksMax && reachable(m.addr) && !links.some((l) => l.base === base)) connect(base);
  }
  const addrs = new Set(view.members.map((m) => location.protocol + "//" + m.addr));
  const ids = new Set(view.members.map((m) => m.id));
  for (const l of [...links]) {
    const gone = l.node ? !ids.has(l.node) : !addrs.has(l.base);
    if (l !== links[0] && gone && !l.fresh) drop(l);
  }
  for (const m of view.lead ? view.members : []) m.link?.hear(m.connected);
}

function drop(link) {
  link.close();
  const i = links.indexOf(link);
  if (i >= 0) links.splice(i, 1);
}

const signs = {
  ok: "M10 1a9 9 0 1 0 0 18a9 9 0 0 0 0-18zM8.6 14.2 4.7 10.3 6.1 8.9 8.6 11.4 13.9 6.1 15.3 7.5z",
  warn: "M10 1.5 19.5 18.5H.5zM9 7v6h2V7zM9 14.5v2h2v-2z",
  bad: "M10 1a9 9 0 1 0 0 18a9 9 0 0 0 0-18zM9 5h2v6.5H9zM9 13h2v2H9z",
  wait: "M10 1a9 9 0 1 0 0 18a9 9 0 0 0 0-18zM10 4a6 6 0 1 1 0 12a6 6 0 0 1 0-12z",
};
const iconColours = { ok: "%230c7f76", warn: "%23b87400", bad: "%23c8372d", wait: "%23888" };

function showVerdict(view) {
  const { level, headline, because } = judge(view);
  const root = document.documentElement;
  put(byID("headline"), headline);
  put(byID("since"), level === "bad" && view.lostAge >= 1 ? "for " + long(view.lostAge) : "");
  put(byID("because"), because.filter(Boolean).join(" "));
  set(byID("sign"), "d", signs[level]);
  set(byID("sign"), "fill-rule", "evenodd");
  if (root.dataset.level !== level || !byID("icon").href.includes("svg")) {
    byID("icon").href = `data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'><path d='M3 20v-4h6v-5h6V6h6' fill='none' stroke='${iconColours[level]}' stroke-width='3'/></svg>`;
  }
  root.dataset.level = level;
  root.dataset.leader = view.lead ? view.leader : 0;
  root.classList.toggle("stale", view.newest !== null && view.fresh.length === 0);
  const title = headline + " · Isotone";
  if (document.title !== title) document.title = title;
}

function showFeed(view) {
  const members = view.members.length || 1;
  const poll = view.fresh.filter((link) => link.status === "polling").length;
  let text = "connecting";
  if (view.fresh.length > 0) text = `live from ${view.fresh.length} of ${members}` + (poll === view.fresh.length ? ", polled" : "");
  else if (view.newest) text = `last update ${ago(view.newest.age)}`;
  put(byID("feed"), text);
  byID("beat").classList.toggle("on", view.fresh.length > 0);
  put(byID("foot"), view.newest ? `Page from ${location.host}. Figures cover all members that answer.` : "Isotone");
}

function show() {
  const view = look(links);
  const last = links.find((link) => link.node === view.leader && link.state && !link.fresh); // link to a leader that has stopped answering
  lostAt = view.fresh.length > 0 && view.leader && !last ? null : lostAt ?? last?.at ?? view.newest?.at ?? now();
  view.lostAge = lostAt === null ? 0 : (now() - lostAt) / 1000;
  showVerdict(view);
  showFeed(view);
  showFacts(view);
  if (!view.newest) return;
  const data = overlay(links);
  for (const chart of charts) chart.draw(data, view.elections);
  showMembers(view);
  timeline.draw(view);
  showElections(view);
  showTimelines(view);
  showLocks(view);
  showWorkers(view);
  showRuler(view);
  showMove(view);
  showTry(view);
}

let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    show();
  });
}

// open connects to the page's server, or again to the members from before the page was hidden.
function open() {
  if (links.length > 0) return;
  const bases = suspended.length > 0 ? suspended : [location.origin];
  suspended = [];
  bases.forEach(connect);
}

let suspended = [], hideTimer;
function suspend() {
  suspended = links.map((link) => link.base);
  for (const link of [...links]) drop(link);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hideTimer);
  if (document.hidden) hideTimer = setTimeout(suspend, hiddenMax);
  else open();
});
addEventListener("pagehide", suspend);
addEventListener("pageshow", open);
addEventListener("online", () => links.forEach((link) => link.status === "down" && link.probe()));

cursor.changed = schedule;
open();
setInterval(schedule, 1000);
schedule();
