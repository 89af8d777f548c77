
// Timelines: who owns their groups, and what owners serve. The documents have no names: those are for operators.

const busiestMax = 20; // rows

// showTimelines is hidden in a cluster without timelines. Who owns what is as the leader knows it; what it serves each owner says itself.
function showTimelines(view) {
  const all = view.from.timelines;
  const any = (all?.total ?? 0) > 0;
  byID("timelines").hidden = !any;
  if (!any) return;
  const told = view.fresh.filter((link) => link.state.timelines);
  put(byID("timelines-text"), timelinesText(all));
  showOwners(all, told);
  showBusiest(told);
}

function timelinesText(t) {
  const owners = t.owners ?? [];
  const groups = owners.reduce((sum, o) => sum + o.groups, 0);
  const orphans = owners.find((o) => o.nodeID === 0);
  const last = t.lastMoves?.at(-1);
  return `${grouped(t.total)} ${t.total === 1 ? "timeline" : "timelines"} in ${plural(groups, "group")}` + (t.permitted ? "" : "; TIMELINES is off, so that none can be created") + "." +
    (orphans ? ` ${plural(orphans.groups, "group")} ${orphans.groups === 1 ? "has" : "have"} no owner.` : "") +
    (last ? ` ${plural(Number(t.moves), "move")} of groups, the latest ${ago((Date.now() - new Date(last.at)) / 1000)}: ${plural(last.groups, "group")} from node ${last.from} to node ${last.to}.` : "");
}

const loadOf = (l) => [rate(l?.requestsPerSecond), rate(l?.timestampsPerSecond), rate(l?.refusedPerSecond)];

// refusedCell marks what quotas refuse.
function refusedCell(element, load) {
  element.className = "n wide" + (load?.refusedPerSecond > 0 ? " refused" : "");
}

function showOwners(all, told) {
  const owned = new Map((all.owners ?? []).map((o) => [o.nodeID, o]));
  for (const link of told) if (!owned.has(link.node)) owned.set(link.node, { nodeID: link.node, groups: 0, timelines: 0 });
  const list = [...owned.values()].sort((a, b) => a.nodeID - b.nodeID);
  rows(byID("owners"), list, (o) => o.nodeID,
    () => make("tr", {}, make("th", { scope: "row" }), cell("n"), cell("n"), cell("n"), cell("n"), cell("n wide")),
    (row, o) => {
      const load = told.find((link) => link.node === o.nodeID)?.state.timelines.load;
      row.className = o.nodeID === 0 ? "bad" : "";
      [o.nodeID === 0 ? "No owner" : "Node " + o.nodeID, grouped(o.groups), grouped(o.timelines), ...loadOf(load)].forEach((text, i) => put(row.children[i], text));
      refusedCell(row.children[5], load);
    });
}

function showBusiest(told) {
  const asked = (b) => b.requestsPerSecond + b.refusedPerSecond;
  const list = told.flatMap((link) => (link.state.timelines.busiest ?? []).map((b) => ({ ...b, node: link.node })));
  list.sort((a, b) => asked(b) - asked(a) || Number(a.id) - Number(b.id));
  byID("busiest-table").hidden = list.length === 0;
  put(byID("busiest-text"), list.length === 0 ? "Nobody asks for any." : "By ID; isotone timeline top has their names, for operators.");
  rows(byID("busiest"), list.slice(0, busiestMax), (b) => b.node + " " + b.id,
    () => make("tr", {}, make("th", { scope: "row" }), make("td", {}), cell("n"), cell("n"), cell("n wide")),
    (row, b) => {
      [String(b.id), "Node " + b.node, ...loadOf(b)].forEach((text, i) => put(row.children[i], text));
      refusedCell(row.children[4], b);
    });
}
