
// Locks and frontiers, as the leader tells them. The document has no names: those are for operators.

// showLocks is hidden while there are none.
function showLocks(view) {
  const l = view.fresh.map((link) => link.state).find((s) => s.locks && s.leader?.nodeID === s.node.id)?.locks;
  byID("locks").hidden = !l;
  if (!l) return;
  const longest = l.longest ?? [];
  put(byID("locks-text"), `${plural(l.held, "lock")} ${l.held === 1 ? "is" : "are"} held, ${plural(l.waiting, "request")} ${l.waiting === 1 ? "waits" : "wait"}, ${plural(l.sessions, "session")}.` +
    (l.groups > 0 ? ` ${plural(l.groups, "group")} of writers, whose frontier is ${span(l.lagSeconds)} behind${l.groups > 1 ? " at most" : ""}.` : "") +
    (longest.length > 0 ? " isotone locks list has their names, for operators." : ""));
  byID("longest-table").hidden = longest.length === 0;
  rows(byID("longest"), longest, (h) => h.token,
    () => make("tr", {}, make("th", { scope: "row" }), cell("n"), cell("n wide")),
    (row, h) => [span(h.seconds), h.token, h.session].forEach((text, i) => put(row.children[i], text)));
}
