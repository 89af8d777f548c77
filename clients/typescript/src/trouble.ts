/** Bounds the nodes whose failures errors name. */
const troubleMax = 8;

/** The latest failure of each node since the latest success, for the errors of calls: they name all that was tried. */
export class Trouble {
  private readonly list = new Map<string, { text: string; times: number }>(); // the latest one last

  note(addr: string, text: string): void {
    const times = (this.list.get(addr)?.times ?? 0) + 1;
    this.list.delete(addr);
    for (const oldest of this.list.keys()) if (this.list.size >= troubleMax) this.list.delete(oldest);
    this.list.set(addr, { text, times });
  }

  clear(): void {
    this.list.clear();
  }

  /** Returns the failures, and the nodes that are silent without having failed, to append to a message; "" if there are none. */
  text(unanswered: readonly string[]): string {
    const silent = [...new Set(unanswered)].filter((addr) => !this.list.has(addr)).map((addr) => `; ${addr}: it has not answered yet`);
    return (
      [...this.list].map(([addr, { text, times }]) => `; ${addr}: ${text}${times > 1 ? ` (${times} times)` : ""}`).join("") +
      silent.join("")
    );
  }
}
