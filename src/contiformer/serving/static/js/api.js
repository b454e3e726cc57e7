// Requests: errors are shown with the server's text, and of several questions only the latest is answered.

import { byId } from "./dom.js";

let waiting = 0;
let busyTimer = 0;

function busy(change) {
  waiting += change;
  clearTimeout(busyTimer);
  // answers in a moment need no sign
  if (waiting) busyTimer = setTimeout(() => { byId("busy").hidden = false; }, 250);
  else byId("busy").hidden = true;
}

export function showError(error) {
  byId("message-text").textContent = error.message ?? String(error);
  byId("message").hidden = false;
}

export function clearError() {
  byId("message").hidden = true;
}

/** JSON of an endpoint. An error has the text of the server, with row and column. */
export async function ask(path, parameters = {}, body = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined));
  const text = typeof body === "string";
  const options = body === undefined ? {} : {
    method: "POST", body: text ? body : JSON.stringify(body),
    headers: { "Content-Type": text ? "text/csv" : "application/json" },
  };
  busy(1);
  try {
    const response = await fetch(`/explore/${path}?${query}`, options);
    const answer = await response.json().catch(() => null);
    if (!response.ok) throw new Error(answer?.detail ?? `the server answered ${response.status}`);
    return answer;
  } catch (error) {
    if (error instanceof TypeError) throw new Error("the server does not answer: is it still running?");
    throw error;
  } finally {
    busy(-1);
  }
}

/** Questions of one kind, one at a time: while one is answered only the newest waits, and only its answer is used. */
export class Latest {
  constructor(delay = 0) {
    this.delay = delay;
    this.timer = 0;
    this.round = 0;
    this.running = false;
    this.next = null;
  }

  /** Forget what was asked. */
  cancel() {
    clearTimeout(this.timer);
    this.round += 1;
    this.next = null;
  }

  /** Ask after the delay, then `use(answer)` unless another question came. */
  go(question, use, failed = showError) {
    this.cancel();
    const { round } = this;
    this.timer = setTimeout(() => {
      this.next = { question, use, failed, round };
      if (!this.running) this.run();
    }, this.delay);
  }

  async run() {
    this.running = true;
    while (this.next) {
      const { question, use, failed, round } = this.next;
      this.next = null;
      try {
        const answer = await question();
        if (round === this.round) { clearError(); use(answer); }
      } catch (error) {
        if (round === this.round) failed(error);
      }
    }
    this.running = false;
  }
}
