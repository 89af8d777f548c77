
// The state of the cluster according to all links, and its description in words.

// look returns one view of the cluster. If links disagree about the leader, the one with
// the highest term counts.
function look(links) {
  const fresh = links.filter((link) => link.fresh);
  const termOf = (link) => link.state.term ?? 0;
  const byTerm = [...fresh].sort((a, b) => termOf(b) - termOf(a) || !!b.state.leader - !!a.state.leader || b.at - a.at);
  const newest = byTerm[0] ?? links.filter((link) => link.state).sort((a, b) => b.at - a.at)[0];
  if (!newest) return { links, fresh, members: [], leader: 0, term: 0, newest: null, lead: null };
  const leader = newest.state.leader?.nodeID ?? 0;
  const lead = fresh.find((link) => link.node === leader && link.state.node.role === "leader") ?? null;
  const from = (lead ?? newest).state;
  const members = (from.members ?? []).map((m) => {
    const link = links.find((l) => l.node === m.nodeID) ?? null;
    const own = link?.fresh ? link.state : null;
    // As one node sees all clocks: readings are on their way for a while, so each finds its own ahead.
    const median = from.clock?.offsetFromMedianSeconds ?? 0;
    const doubt = doubted(m, own ?? from, !!own || !!m.self);
    return {
      id: m.nodeID, addr: m.addr, peerAddr: m.peerAddr, learner: !!m.learner, leader: m.nodeID === leader,
      connected: !!(m.self || m.connected), lag: m.lagEntries, link, own,
      clock: own?.clock?.ok === false ? own.clock.offsetFromMedianSeconds : m.self ? median : known(m.clockOffsetSeconds) ? m.clockOffsetSeconds + median : null,
      clockOK: (own ? own.clock?.ok !== false : true) && !doubt, doubt,
    };
  });
  const forming = !leader && fresh.length > 0 && fresh.every((link) => link.state.node.forming);
  return { links, fresh, newest, lead, from, leader, forming, term: from.term, members, elections: elections(links, lead ?? newest) };
}

// doubted returns a warning if timestamps do not follow the clock of member m according to a
// state document, its own or another's; otherwise "".
function doubted(m, state, own) {
  const clock = state.clock ?? {}, quorum = clock.offsetFromQuorumSeconds;
  if (!known(quorum) || (!own && (clock.alone || !known(m.clockOffsetSeconds)))) return "";
  const offset = own ? quorum : quorum + m.clockOffsetSeconds, size = Math.abs(offset);
  if (!(own ? clock.exceeded : clock.limitSeconds > 0 && size > clock.limitSeconds)) return "";
  const by = span(size < 99.5 ? size : Math.round(size), 2); // rounded, so that it does not change every second
  if (clock.alone) {
    return `The wall clock of node ${m.nodeID} has jumped by ${by}: timestamps follow its steady clock. ` +
      `Restart the node${offset > absence ? " with CLOCK_JUMP_MAX_MS=0" : ""} if the wall clock is right.`;
  }
  return `The clock of node ${m.nodeID} is ${by} ${offset < 0 ? "behind" : "ahead of"} the quorum's: timestamps follow the quorum's clock. Correct the node's.`;
}

// astray returns by how much a node's clock is ahead of the one that timestamps follow.
function astray(clock) {
  const offset = clock?.offsetFromQuorumSeconds;
  return clock?.exceeded && known(offset) ? offset - Math.sign(offset) * clock.limitSeconds : 0;
}

// elections returns the changes of leader that any member has seen, oldest first, with their
// age. Where members differ, the preferred one counts.
function elections(links, preferred) {
  const seen = new Map();
  for (const link of [preferred, ...links.filter((l) => l !== preferred && l.state)]) {
    for (const e of link.state.elections ?? []) {
      const key = e.term + " " + e.leader;
      const age = (Date.parse(link.state.now) - Date.parse(e.at)) / 1000 + link.age;
      if (!seen.has(key) && known(age)) seen.set(key, { age: Math.max(0, age), term: e.term, leader: e.leader, gap: e.gapSeconds });
    }
  }
  return [...seen.values()].sort((a, b) => b.age - a.age || a.term - b.term).slice(-32);
}

// reachable reports whether the page may connect to an address. An address such as localhost
// means the browser's machine, which is right only if the page itself comes from there.
const loopback = /^(localhost|127\.[\d.]+|\[::1\])(:|$)/i;
const reachable = (addr) => /^[^/@?#\s]+:\d+$/.test(addr) && (!loopback.test(addr) || loopback.test(location.host));

const overtakeShown = 60; // s
const absence = 366 * 86400; // s; a sole voter trusts no wall clock that is further ahead, not even when it starts
const patience = 6; // s; enough for the others to elect another leader

// judge returns the level (ok, warn, bad, wait), a headline and reasons. The text changes
// only when something happens, because screen readers announce it.
function judge(view) {
  const { fresh, newest, members, leader, lead } = view;
  if (!newest) {
    return view.links.every((link) => link.status === "new")
      ? { level: "wait", headline: "Connecting", because: [] }
      : { level: "bad", headline: "This node does not answer", because: ["Retrying."] };
  }
  if (fresh.length === 0) {
    const others = view.links.length - 1;
    return { level: "bad", headline: others > 0 ? "No member answers" : `Node ${newest.node} does not answer`, because: ["The data below is old. Retrying."] };
  }
  const voters = members.filter((m) => !m.learner);
  const answering = voters.filter((m) => m.own).length, enough = answering > voters.length / 2;
  const silent = view.links.filter((link) => link.node === leader && link.state && !link.fresh);
  if (view.forming) {
    const reasons = new Set(fresh.map((link) => link.state.node.notReady).filter(Boolean));
    return { level: "wait", headline: "The cluster is being formed", because: [...reasons].map((text) => capital(text) + ".") };
  }
  if (!leader) {
    const gone = view.links.filter((link) => link.node && !link.fresh).map((link) => link.node).sort((a, b) => a - b);
    return { level: "bad", headline: "No leader", because: [gone.length > 0 ? capital(nodes(gone)) + (gone.length > 1 ? " do" : " does") + " not answer." : "",
      `${fresh.length} of ${members.length} members answer` + (enough ? "." : ", too few to elect one.")] };
  }
  if (!lead && silent.length > 0 && silent[0].age < patience) {
    return { level: "bad", headline: `Node ${leader} stopped answering`, because: [enough ? "The others will elect a leader." : "Too few members are left to elect another."] };
  }
  const because = troubles(view);
  const took = overtaken(view);
  const level = because.length > 0 ? "warn" : "ok";
  if (voters.length === 1) because.push("It is the only voter: if it fails, the cluster stops.");
  else if (level === "ok") because.push(`All ${members.length} members are connected.`);
  if (took) because.push(took);
  return { level, headline: `Node ${leader} leads`, because };
}

// troubles lists what is wrong while there is a leader.
function troubles(view) {
  const { members, lead, leader } = view;
  const list = [];
  const voters = members.filter((m) => !m.learner);
  const asked = (m) => m.link?.status === "new"; // the first answer is still to come
  const apart = members.filter((m) => (lead ? !m.connected : !m.own && !m.leader && !asked(m))).map((m) => m.id);
  if (!lead && !members.some((m) => m.leader && asked(m))) list.push("It does not answer this page; rates and lags are unknown.");
  if (apart.length > 0) {
    const left = voters.filter((m) => !apart.includes(m.id)).length - (Math.floor(voters.length / 2) + 1);
    list.push(capital(nodes(apart)) + (apart.length > 1 ? " are" : " is") + (lead ? " not connected" : " not reachable") +
      (left <= 0 ? "; one more failure stops the cluster." : "."));
  }
  for (const m of members) {
    if (!m.own) continue;
    if (!m.own.node.ready && !apart.includes(m.id)) list.push(`Node ${m.id} is not ready${m.own.node.notReady ? ": " + m.own.node.notReady : ""}.`);
    if (!m.clockOK && !m.doubt) list.push(`The clock of node ${m.id} is wrong.`);
  }
  for (const m of members) if (m.doubt) list.push(m.doubt);
  if (lead && known(lead.state.epoch?.leadSeconds) && lead.state.epoch.leadSeconds + astray(lead.state.clock) < -1) list.push(`Time stands still: node ${leader} cannot raise the ceiling.`);
  return list;
}

// overtaken returns a sentence about the latest change of leader, or "" if it is long ago.
function overtaken(view) {
  const last = view.elections.at(-1), before = view.elections.at(-2);
  if (!last || last.leader !== view.leader || last.age > overtakeShown || !before) return "";
  const gap = known(last.gap) ? ` after ${span(last.gap)} without a leader` : "";
  return (before.leader === last.leader ? "It was elected again" : `It took over from node ${before.leader}`) + gap + ".";
}
