
// Tables and lists. Rows are updated in place, so that nothing flickers and a selection
// stays.

// rows makes a table body have one row for each item, in order.
function rows(body, items, key, create, update) {
  const old = new Map([...body.children].map((row) => [row.dataset.key, row]));
  items.forEach((item, i) => {
    const id = String(key(item));
    let row = old.get(id);
    if (!row) {
      row = create(item);
      row.dataset.key = id;
    }
    old.delete(id);
    update(row, item);
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
  });
  for (const row of old.values()) row.remove();
}

const cell = (name) => make("td", { class: name });

// stateOf returns the state of a member in words.
function stateOf(m, view) {
  const role = m.leader ? "leads" : m.learner ? "learns" : m.own && m.own.node.role !== "leader" && m.own.node.role !== "follower" ? m.own.node.role : "follows";
  if (m.own && !m.own.node.ready) return { level: "warn", text: "not ready", title: m.own.node.notReady };
  if (view.fresh.length === 0) return { level: "off", text: "no data" };
  if (view.forming && !m.own) return { level: "off", text: m.connected ? "reached" : "not reached" };
  if (!m.connected && !m.own) return { level: "bad", text: "lost" };
  if (!m.connected && !m.leader) return { level: "warn", text: "disconnected", title: "The leader is not connected to it." };
  if (m.own) return { level: m.leader ? "lead" : "ok", text: role };
  if (m.link?.state && !m.link.fresh) return { level: m.leader ? "bad" : "warn", text: "silent", title: "It does not answer this page." };
  return { level: "off", text: role, title: m.addr && !reachable(m.addr) ? "The browser cannot reach its address." : "The page cannot read its state." };
}

function showMembers(view) {
  const spread = Math.max(0.001, ...view.members.map((m) => Math.abs(m.clock ?? 0)));
  const scale = [0.001, 0.01, 0.1, 1, 10, 100, 1e9].find((n) => spread <= n);
  put(byID("spread-scale"), "±" + thin + brief(scale));
  rows(byID("members"), view.members, (m) => m.id, () => {
    const row = make("tr", {}, make("th", { scope: "row" }, make("span", { class: "id" }), make("span", { class: "addr" })),
      make("td", { class: "state" }, make("span", { class: "pip", "aria-hidden": "true" }), make("span")),
      cell("n"), cell("n"), make("td", { class: "wide spread", "aria-hidden": "true" }, make("span", { class: "beam" }, make("i"))));
    for (let i = 0; i < 5; i++) row.append(cell("n wide"));
    return row;
  }, (row, m) => {
    const state = stateOf(m, view);
    row.className = state.level;
    put(row.querySelector(".id"), String(m.id));
    put(row.querySelector(".addr"), m.addr || "no address yet");
    set(row.querySelector(".addr"), "title", m.peerAddr ? "for other members: " + m.peerAddr : null);
    put(row.querySelector(".state span:last-child"), state.text);
    set(row.querySelector(".state"), "title", state.title || null);
    const point = row.querySelector(".beam i");
    point.hidden = !known(m.clock);
    if (known(m.clock)) point.style.left = 50 + 50 * Math.max(-1, Math.min(1, m.clock / scale)) + "%";
    point.className = m.clockOK ? "" : "wrong";
    const own = m.own;
    const texts = [known(m.lag) ? grouped(m.lag) : none, signed(m.clock)];
    const late = [own ? rate(own.rates?.timestampsPerSecond) : none, own ? rate(own.rates?.idsPerSecond) : none,
      span(own?.latency?.p50), span(own?.latency?.p99), own ? long(own.node.uptimeSeconds) : none];
    texts.forEach((text, i) => put(row.children[2 + i], text));
    late.forEach((text, i) => put(row.children[5 + i], text));
  });
}

function showElections(view) {
  const list = [...view.elections].reverse();
  put(byID("elections-summary"), list.length === 0 ? "No change of leader yet" : plural(list.length, "change") + " of leader" +
    (known(list[0].gap) ? `; the latest took ${span(list[0].gap)}, ${ago(list[0].age)}` : ""));
  rows(byID("elections"), list, (e) => e.term + " " + e.leader,
    () => make("tr", {}, make("td", {}), cell("n"), make("td", {}), cell("n")),
    (row, e) => {
      const at = new Date(Date.now() - e.age * 1000);
      put(row.children[0], ago(e.age));
      if (!row.children[0].title) row.children[0].title = at.toLocaleString();
      put(row.children[1], String(e.term));
      put(row.children[2], "node " + e.leader);
      put(row.children[3], span(e.gap));
    });
}

function showWorkers(view) {
  const leases = view.fresh.flatMap((link) => (link.state.workers ?? []).map((w) => ({ ...w, node: link.node, left: w.leftSeconds - link.age })));
  leases.sort((a, b) => a.node - b.node || a.datacenter - b.datacenter || a.worker - b.worker);
  byID("workers-table").hidden = leases.length === 0;
  byID("workers-none").hidden = leases.length > 0;
  rows(byID("workers"), leases, (w) => [w.node, w.datacenter, w.worker].join(" "),
    () => make("tr", {}, make("th", { scope: "row" }), cell("n"), cell("n"), cell("n"), make("td", { class: "meter", "aria-hidden": "true" }, make("span", { class: "bar" }, make("i")))),
    (row, w) => {
      const whole = (Number(w.end) - Number(w.start)) / 1000;
      put(row.children[0], "Node " + w.node);
      put(row.children[1], String(w.datacenter));
      put(row.children[2], String(w.worker));
      put(row.children[3], span(Math.max(0, w.left), 2));
      row.querySelector("i").style.width = 100 * Math.max(0, Math.min(1, whole > 0 ? w.left / whole : 0)) + "%";
    });
}

// showRuler draws clock, issued time and ceiling on one line.
function showRuler(view) {
  const box = byID("ruler"), from = view.lead?.state ?? null;
  const time = from?.epoch?.leadSeconds, ceiling = from?.ceiling?.leadSeconds;
  box.hidden = !known(time);
  if (!known(time)) {
    put(byID("ruler-text"), "Only the leader reports these.");
    return;
  }
  const ends = [0, time, ...(known(ceiling) ? [ceiling] : [])];
  const low = Math.min(...ends), size = Math.max(Math.max(...ends) - low, 1e-6);
  const place = (n) => 6 + 88 * (n - low) / size + "%";
  if (box.children.length === 0) {
    for (const name of ["clock", "time", "ceiling"]) box.append(make("span", { class: "stop " + name }, make("b", {}, name)));
    box.prepend(make("span", { class: "rail" }), make("span", { class: "rail free" }));
  }
  const [, free, clock, issued, bound] = box.children;
  clock.style.left = place(0);
  issued.style.left = place(time);
  bound.hidden = !known(ceiling);
  if (known(ceiling)) {
    bound.style.left = place(ceiling);
    free.style.left = place(time);
    free.style.width = 88 * Math.max(0, ceiling - time) / size + "%";
  }
  put(byID("ruler-text"), `Issued time is ${span(Math.abs(time), 2)} ${time < 0 ? "behind" : "ahead of"} the clock of node ${from.node.id}` +
    (known(ceiling) ? `; ${span(Math.max(0, ceiling - time), 2)} more is reserved.` : "."));
}

// showMove says when somebody moved time far ahead of the clock last, at any member that answers.
function showMove(view) {
  const moves = view.fresh.flatMap((link) => link.state.lastMove ?? []);
  const last = moves.sort((a, b) => new Date(b.at) - new Date(a.at))[0];
  byID("moved").hidden = !last;
  if (last) put(byID("moved"), `${last.operator ? "An operator" : "A client"} moved time ${span(last.aheadSeconds, 2)} ahead of the clock, ${ago((Date.now() - new Date(last.at)) / 1000)}; the log says who.`);
}

// intervalText returns the largest width of the cluster clock at any node, or why one has none.
function intervalText(view) {
  const all = view.fresh.map((link) => link.state.interval).filter((i) => i);
  const good = (i) => known(i.widthSeconds) && known(i.limitSeconds) && i.limitSeconds >= 0;
  if (all.length === 0) return view.fresh.length ? "off" : none;
  if (all.some((i) => i.broken)) return "wrong rate";
  return all.every(good) ? span(Math.max(...all.map((i) => i.widthSeconds))) : "none";
}

function showFacts(view) {
  const from = view.from;
  const sum = (key) => view.fresh.reduce((all, link) => all + (link.state.rates?.[key] ?? 0), 0);
  const uptime = view.lead?.state.node.uptimeSeconds;
  const versions = [...new Set(view.fresh.map((link) => link.state.version))];
  const facts = {
    Term: from?.term, "Read mode": from?.readMode, "Requests/s": view.fresh.length ? rate(sum("requestsPerSecond")) : none,
    "Errors/s": view.fresh.length ? rate(sum("errorsPerSecond")) : none, "Leader up": known(uptime) ? long(uptime) : none,
    Version: versions.join(", ") || from?.version, Interval: intervalText(view),
  };
  const list = byID("facts");
  if (list.children.length === 0) for (const name of Object.keys(facts)) list.append(make("div", {}, make("dt", {}, name), make("dd", {})));
  Object.values(facts).forEach((value, i) => put(list.children[i].lastChild, String(value ?? none)));
  list.children[3].classList.toggle("warn", sum("errorsPerSecond") > 0);
}

function showTry(view) {
  const addr = view.newest?.state.leader?.addr || location.host;
  const port = addr.slice(addr.lastIndexOf(":") + 1), host = addr.slice(0, addr.lastIndexOf(":"));
  const secure = location.protocol === "https:";
  put(byID("try"), [
    `curl '${secure ? "https://" : ""}${addr}/timestamp?format=json'`,
    `redis-cli -h ${host.replace(/[[\]]/g, "")} -p ${port} TS 1`,
    `isotone status ${addr} --watch`,
  ].join("\n"));
}
