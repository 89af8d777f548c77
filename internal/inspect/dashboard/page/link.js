
// A link reads the state document of one member: first a probe of /state, then the stream of
// server-sent events, or polls if the stream does not work. The page has a link to every
// member, so if one fails the page already has the others.

const silenceMax = 2600; // ms; a document comes every second
const probeTimeout = 2000;
const pollEvery = 1000;
const streamAgain = 20000; // after a stream that did not work
const backoffMin = 400, backoffMax = 15000;

class Link {
  constructor(base, changed) {
    this.base = base;
    this.changed = changed;
    this.status = "new"; // new, live, polling, doubt (something broke, a probe is under way), down
    this.state = null;
    this.at = 0; // when the state arrived
    this.node = 0;
    this.failures = 0;
    this.streamAfter = 0;
    this.track = new Track();
    this.probe();
  }

  // fresh: the member answers, and its last document is recent.
  get fresh() {
    return this.state !== null && this.status !== "down" && now() - this.at < silenceMax;
  }

  get age() {
    return (now() - this.at) / 1000;
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.abort?.abort();
    this.source = this.abort = null;
    this.closed = true;
  }

  after(delay, step) {
    clearTimeout(this.timer);
    this.timer = setTimeout(step, delay);
  }

  // probe requests the document once. Browsers report a failed request in the console, which
  // a page cannot prevent; the backoff keeps such reports few.
  async probe() {
    clearTimeout(this.timer);
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    const timeout = setTimeout(() => abort.abort(), probeTimeout);
    let text = null;
    try {
      const answer = await fetch(this.base + "/state", { signal: abort.signal, cache: "no-store", credentials: "omit" });
      if (answer.ok) text = await answer.text();
    } catch {
      // down, or the browser cannot reach it
    }
    clearTimeout(timeout);
    if (this.closed || this.abort !== abort) return;
    if (text === null || !this.take(text, "polling")) return this.down();
    this.failures = 0;
    if (now() >= this.streamAfter) this.stream();
    else this.after(pollEvery, () => this.probe());
  }

  stream() {
    const source = this.source = new EventSource(this.base + "/live/state/stream");
    source.onmessage = (event) => {
      if (this.take(event.data, "live")) this.watch();
      else this.broken();
    };
    source.onerror = () => {
      // CLOSED means an answer that is not a stream; an immediate retry would not help.
      if (source.readyState === EventSource.CLOSED || this.status !== "live") this.streamAfter = now() + streamAgain;
      this.broken();
    };
    this.watch();
  }

  watch() {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => {
      if (this.status !== "live") this.streamAfter = now() + streamAgain; // no event
      this.broken();
    }, silenceMax);
  }

  // broken handles the end of the stream. A probe then finds out whether the member is down.
  broken() {
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = null;
    this.status = "doubt";
    this.probe();
    this.changed(this);
  }

  down() {
    this.status = "down";
    this.failures++;
    const delay = Math.min(backoffMax, backoffMin * 2 ** (this.failures - 1)) * (0.8 + 0.4 * Math.random());
    this.retryAt = now() + delay;
    this.after(delay, () => this.probe());
    this.changed(this);
  }

  // hear handles the leader's report on this member: while it is not connected, probes are
  // rare; as soon as it is connected again, the next probe follows.
  hear(connected) {
    if (this.status === "down" && connected && this.heard === false) {
      this.failures = 0;
      this.probe();
    } else if (this.status === "down" && !connected && this.heard !== false) {
      this.failures = Math.max(this.failures, 5);
      this.after(backoffMax, () => this.probe());
    }
    this.heard = connected;
  }

  take(text, status) {
    let state;
    try {
      state = JSON.parse(text);
    } catch {
      return false;
    }
    if (!state || !state.node || !known(state.node.id)) return false;
    this.state = state;
    this.node = state.node.id;
    this.at = now();
    this.status = status;
    this.track.take(state, this.at);
    this.changed(this);
    return true;
  }
}

const now = () => performance.now();
