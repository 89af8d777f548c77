
// The charts show the cluster, not one node: they combine the histories of all members by
// second, including those of members that have failed.

const chartSeconds = 300;
const trackKeys = ["timestampsPerSecond", "idsPerSecond", "p50", "p99", "leadSeconds"];

// Track holds the figures of one member by second of this page's own clock.
class Track {
  constructor() {
    this.seconds = new Map();
    this.last = -Infinity;
    this.phase = null;
  }

  take(state, at) {
    // Documents are a second apart by the member's clock; their arrival jitters.
    const theirs = Date.parse(state.now);
    if (this.phase === null || Math.abs(theirs + this.phase - at) > 1500) this.phase = at - theirs;
    this.last = Math.floor((theirs + this.phase) / 1000);
    const history = state.history ?? {};
    const step = history.intervalSeconds > 0 ? history.intervalSeconds : 1;
    const length = Math.max(0, ...trackKeys.map((key) => history[key]?.length ?? 0));
    for (let i = 0; i < length; i++) {
      const second = this.last - Math.round((length - 1 - i) * step);
      this.seconds.set(second, trackKeys.map((key) => {
        const n = history[key]?.[(history[key].length - length) + i];
        return known(n) ? n : null;
      }));
    }
    if (length === 0) {
      this.seconds.set(this.last, [state.rates?.timestampsPerSecond, state.rates?.idsPerSecond, state.latency?.p50, state.latency?.p99, state.epoch?.leadSeconds]
        .map((n) => (known(n) ? n : null)));
    }
    for (const second of this.seconds.keys()) if (second < this.last - 2 * chartSeconds) this.seconds.delete(second);
  }

  // at returns the figures of a second. While the member answers, the latest figures also
  // count for up to two seconds after them.
  at(second, fresh) {
    return this.seconds.get(second) ?? (fresh && second > this.last && second <= this.last + 2 ? this.seconds.get(this.last) : undefined);
  }
}

// overlay returns the figures of the cluster for the last seconds, oldest first. It adds the
// members' rates of IDs. For timestamps it takes the largest, because only one member issues
// them at a time, and the seconds of two members do not coincide. Latency is that of the
// member that serves most.
function overlay(links) {
  const edge = Math.max(Math.floor(now() / 1000) - 2, ...links.filter((link) => link.fresh).map((link) => link.track.last));
  const out = Object.fromEntries(trackKeys.map((key) => [key, new Array(chartSeconds).fill(null)]));
  const add = (a, b) => (b === null ? a : (a ?? 0) + b);
  for (let i = 0; i < chartSeconds; i++) {
    let most = -1, issued = -1;
    for (const link of links) {
      const figures = link.track.at(edge - chartSeconds + 1 + i, link.fresh);
      if (!figures) continue;
      const [timestamps, ids, p50, p99, lead] = figures;
      if (timestamps !== null) out.timestampsPerSecond[i] = Math.max(out.timestampsPerSecond[i] ?? 0, timestamps);
      out.idsPerSecond[i] = add(out.idsPerSecond[i], ids);
      if (lead !== null && (timestamps ?? 0) > issued) {
        issued = timestamps ?? 0;
        out.leadSeconds[i] = lead;
      }
      const work = (timestamps ?? 0) + (ids ?? 0);
      if (p50 !== null && work > most) {
        most = work;
        out.p50[i] = p50;
        out.p99[i] = p99;
      }
    }
  }
  return out;
}
