// When the page asks again: the service says that something has changed (server-sent events). Where
// it cannot, the page asks every few seconds.

const EVERY = 5000;
const GAP = 1000; // at least, between two answers to events
const SELDOM = 60000; // what is no event: leases; and how long a service that refuses is left alone

export class Live {
  #source = null;
  #heard = "";
  #timer = 0;
  #at = 0;
  #refused = 0;

  // `wanted`: whether the page is kept up to date; `ask` asks again; `tick` lets a clock go on.
  constructor(wanted, ask, tick) {
    this.wanted = wanted;
    this.ask = () => {
      this.#at = Date.now();
      ask();
    };
    this.tick = tick;
    setInterval(() => this.#look(), EVERY);
    // A hidden page holds no connection: browsers open only a few to one host.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.stop();
      else if (wanted()) this.ask();
    });
  }

  // Ask for events, unless the page does so already. Called after an answer to the page.
  listen() {
    this.#at = Date.now();
    const waits = Date.now() - this.#refused < SELDOM;
    if (this.#source || waits || document.hidden || !this.wanted() || !window.EventSource) return;
    const source = new EventSource("api/events");
    this.#source = source;
    source.addEventListener("state", ({ data }) => {
      if (data === this.#heard) return;
      this.#heard = data;
      this.#soon();
    });
    // The browser connects again by itself, unless it was refused.
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return;
      this.stop();
      this.#refused = Date.now();
    });
  }

  stop() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #soon() {
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (this.wanted() && !document.hidden) this.ask();
    }, Math.max(this.#at + GAP - Date.now(), 0));
  }

  #look() {
    if (document.hidden || !this.wanted()) return;
    const hears = this.#source?.readyState === EventSource.OPEN;
    if (hears && Date.now() - this.#at < SELDOM) this.tick();
    else this.ask();
  }
}
