import { type Random, pauseAfter, pauseMax } from "./backoff.js";
import { type View, membersMax } from "./resp.js";

// This file decides what a client does to find the leader of its cluster, as internal/core/search does for the Go client. It opens no connection
// and reads no clock. Times are milliseconds of a steady clock.

/** What a connection is for: timestamps, requests that the leader may hold, leases of workers, IDs, questions about the cluster. */
export type Use = "stamps" | "ahead" | "leases" | "ids" | "ask";

/** The outcome of the latest exchange with a node. `ours`: at least not known to be of another cluster; `refuses`: it refuses this client. */
export type Outcome = "unreachable" | "ours" | "foreign" | "refuses";

/** What follows from a report: the suspected leader itself says that it leads, or there is another leader now. */
export type Verdict = "nothing" | "confirmed" | "followed";

/** After that many redirects in a row there are pauses between them. */
const movesMax = 3;
/** How often an active client asks the leader for the members while all is well. */
const refreshInterval = 10_000;
/** For that long the pauses of a search are short: most elections end in that time. */
const eager = 1000;

/** What is known of an address. */
class Node {
  outcome: Outcome = "unreachable";
  asking = false; // a question is under way
  readonly dials = new Map<Use, { failures: number; after: number }>();
  leftUntil = 0; // until then only the node's own word makes it the leader again that it was
  refusals = 0; // of the client, in a row
  askAfter = 0;

  dial(use: Use): { failures: number; after: number } {
    let dial = this.dials.get(use);
    if (!dial) this.dials.set(use, (dial = { failures: 0, after: 0 }));
    return dial;
  }
}

/**
 * The search of one client. It begins when the leader has failed, refused or been silent. It asks all members at once, and again after pauses. A
 * node that says that it leads is followed at once; one that names another leader may not have noticed yet that this leader is down.
 */
export class Search {
  /** The last known leader; "" if there was none yet. */
  leader = "";
  /** The leader is being searched for. */
  suspected = true;
  /** There was no connection to the leader yet. */
  connecting = false;
  private readonly nodes = new Map<string, Node>();
  private learned: readonly string[] = [];
  private asked = 0; // when all were last asked
  private askAfter = 0;
  private rounds = 0; // of questions since all was well
  private begun = 0; // the first of them
  private moves = 0; // redirects in a row

  constructor(
    private readonly given: readonly string[],
    private readonly random: Random = Math.random,
  ) {}

  /** All addresses that may be those of nodes. */
  known(): string[] {
    const list = [...this.learned, ...this.given];
    if (this.leader !== "") list.push(this.leader);
    return unique(list);
  }

  /** The addresses of the members, or all known ones while the members are unknown. */
  members(): readonly string[] {
    return this.learned.length > 0 ? this.learned : this.known();
  }

  private node(addr: string): Node {
    let node = this.nodes.get(addr);
    if (!node) this.nodes.set(addr, (node = new Node()));
    return node;
  }

  /** Removes addresses that are unknown and not used for anything, so that they do not accumulate. */
  forget(used: (addr: string) => boolean): void {
    const known = this.known();
    for (const [addr, node] of this.nodes) if (!node.asking && !known.includes(addr) && !used(addr)) this.nodes.delete(addr);
  }

  /** Returns the nodes to ask now, each of which is then being asked until `answered`, and how long to wait until the next call. */
  ask(now: number): { addrs: string[]; wait: number } {
    if (!this.suspected) return { addrs: [], wait: Infinity };
    if (this.askAfter > now) return { addrs: [], wait: this.askAfter - now };
    if (this.rounds === 0) this.begun = now;
    const addrs = this.known().filter((addr) => this.question(addr, now));
    const wait = pauseAfter(this.rounds++, this.dialPauseMax(now), this.random);
    this.asked = now;
    this.askAfter = now + wait;
    return { addrs, wait };
  }

  /** Reports, once for each interval, whether an active client is to ask the leader for the members though all is well. */
  refresh(now: number): boolean {
    if (this.suspected || this.leader === "" || now - this.asked <= refreshInterval) return false;
    this.asked = now;
    return true;
  }

  /** Reports whether to ask one node, and notes that it is being asked: unless it is already, or has just refused this client. */
  question(addr: string, now: number): boolean {
    const node = this.node(addr);
    if (node.asking || now < node.askAfter) return false;
    return (node.asking = true);
  }

  /** A question has ended, with an answer or without. */
  answered(addr: string): void {
    this.node(addr).asking = false;
  }

  asking(addr: string): boolean {
    return this.nodes.get(addr)?.asking ?? false;
  }

  outcome(addr: string): Outcome {
    return this.nodes.get(addr)?.outcome ?? "unreachable";
  }

  /** Takes in the outcome of any exchange with a node. One that refuses this client is asked less and less often. */
  reported(addr: string, outcome: Outcome, now: number): void {
    const node = this.node(addr);
    if (outcome === "refuses" && now >= node.askAfter) {
      node.askAfter = now + pauseAfter(node.refusals++, pauseMax.refused, this.random); // concurrent attempts count once
    } else if (outcome === "ours") {
      if (node.outcome === "unreachable") node.dial("stamps").after = 0; // it is reached again
      node.refusals = node.askAfter = 0;
    }
    node.outcome = outcome;
  }

  /** Takes in what a node reports. */
  heard(addr: string, view: View, now: number): Verdict {
    this.learn(addr, view);
    if (view.leader === this.leader) return addr === this.leader ? "confirmed" : "nothing";
    if (!this.suspected || !this.accepts(addr, view.leader, now)) return "nothing";
    this.follow(view.leader, now);
    return "followed";
  }

  /** The members that the serving leader reports are all there are. What others report adds to them. */
  private learn(addr: string, view: View): void {
    const serves = addr === view.leader && addr === this.leader && !this.suspected;
    const list = serves ? unique(view.members) : unique([...this.learned, ...view.members]);
    this.learned = list.length > membersMax ? unique(view.members) : list;
  }

  /**
   * Reports whether to follow a node that names another leader. A node that names itself is at least alive. The word of others counts neither against
   * a leader that the client is still connecting to, nor for one that has failed.
   */
  private accepts(addr: string, leader: string, now: number): boolean {
    if (this.leader === "" || addr === leader) return true;
    const connecting = this.connecting && now >= this.node(this.leader).dial("stamps").after;
    const node = this.node(leader);
    return !connecting && now >= node.dial("stamps").after && now >= node.leftUntil;
  }

  private follow(addr: string, now: number): void {
    if (this.leader !== "" && this.suspected) this.node(this.leader).leftUntil = now + pauseMax.retry;
    this.leader = addr;
    this.connecting = true;
  }

  /** A node redirects to another leader. Reports whether to follow: only the word of the present leader counts. */
  moved(from: string, leader: string, now: number): boolean {
    if (from !== this.leader || leader === from) return false;
    const node = this.node(leader);
    node.leftUntil = node.dial("stamps").after = 0; // at once: the node knows that it does not lead
    if (++this.moves > movesMax) node.dial("stamps").after = now + pauseAfter(this.moves - movesMax, pauseMax.retry, this.random);
    this.follow(leader, now);
    return true;
  }

  /** A node has failed, refused, or been silent. Reports whether that is the leader, so that a search begins. */
  suspect(addr: string): boolean {
    if (addr !== this.leader) return false;
    return (this.suspected = true);
  }

  /** There are connections to the leader, and it says itself that it leads: the search ends. */
  confirm(): void {
    this.suspected = false;
  }

  /** There is a connection to the leader. Reports whether that is the first to a new one. */
  connected(): boolean {
    const isNew = this.connecting;
    this.suspected = this.connecting = false;
    return isNew;
  }

  /** A node has answered a request, after a suspicion. */
  recovered(addr: string): void {
    if (addr !== this.leader) return;
    this.suspected = false;
    this.rounds = this.moves = 0;
    this.askAfter = this.asked + 1; // the next search begins without the pause of this one
    this.node(addr).dial("stamps").failures = 0;
  }

  /** How long to wait before the next dial of an address, if that is positive. */
  dialWait(addr: string, use: Use, now: number): number {
    return this.node(addr).dial(use).after - now;
  }

  /** A dial has succeeded. A node that repeatedly connects and falls silent is tried less often for IDs, which others have too. */
  dialed(addr: string, use: Use): void {
    const dial = this.node(addr).dial(use);
    if (use === "ids" && dial.failures > 0) dial.failures--;
  }

  /** Bounds the pauses of the search. */
  dialPauseMax(now: number): number {
    return this.suspected && now - this.begun < eager ? pauseMax.search : pauseMax.search_later;
  }

  /** An address cannot be reached, or its connections are unusable. Reports whether a search begins. */
  failed(addr: string, use: Use, most: number, now: number): boolean {
    const node = this.node(addr);
    const dial = node.dial(use);
    const pause = pauseAfter(dial.failures, node.outcome === "refuses" ? pauseMax.refused : most, this.random);
    if (now >= dial.after) {
      dial.after = now + pause; // concurrent attempts count once
      dial.failures++;
    }
    return use === "stamps" && this.suspect(addr);
  }

  /** Shortens the pauses of all nodes: now every one is needed. */
  hurry(use: Use, now: number): void {
    for (const node of this.nodes.values()) {
      const dial = node.dial(use);
      dial.failures = Math.min(dial.failures, 1);
      dial.after = now + pauseAfter(dial.failures, pauseMax.retry, this.random);
    }
  }
}

function unique(list: readonly string[]): string[] {
  return [...new Set(list)].sort();
}
