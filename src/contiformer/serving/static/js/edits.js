// A series or event sequence that can be edited; every edit can be undone.

class Editable {
  constructor(given) {
    this.given = given;
    this.edits = [];
  }

  _remember(text, merge) {
    const last = this.edits.at(-1);
    // a drag is one edit
    if (merge && last && last.merge === merge) last.text = text;
    else this.edits.push({ text, merge, before: this._copy() });
  }

  undo() {
    const last = this.edits.pop();
    if (last) this._restore(last.before);
  }

  reset() {
    const first = this.edits[0];
    if (first) this._restore(first.before);
    this.edits = [];
  }
}

/** Rows of times with a value or null for each channel, sorted by time. */
export class Series extends Editable {
  constructor(given, channels) {
    super(given);
    this.rows = given.times.map((t) => ({ t, values: new Array(channels).fill(null) }));
    for (const [row, channel, value] of given.points) this.rows[row].values[channel] = value;
    this.static = [...given.static];
    this.channels = channels;
  }

  _copy() {
    return { rows: this.rows.map((row) => ({ ...row, values: [...row.values] })), static: [...this.static] };
  }

  _restore({ rows, static: fixed }) {
    this.rows = rows;
    this.static = fixed;
  }

  /** Observations of a channel, with the row each is in. */
  of(channel) {
    const found = [];
    this.rows.forEach((row, n) => {
      if (row.values[channel] !== null) found.push({ t: row.t, v: row.values[channel], row: n });
    });
    return found;
  }

  counts() {
    const counts = new Array(this.channels).fill(0);
    for (const row of this.rows) row.values.forEach((v, c) => { if (v !== null) counts[c] += 1; });
    return counts;
  }

  add(channel, t, v, text) {
    this._remember(text);
    return this._put(channel, t, v);
  }

  _put(channel, t, v) {
    let row = this.rows.find((one) => one.t === t && one.values[channel] === null);
    if (!row) {
      row = { t, values: new Array(this.channels).fill(null), added: true };
      const place = this.rows.findIndex((one) => one.t > t);
      this.rows.splice(place < 0 ? this.rows.length : place, 0, row);
    }
    row.values[channel] = v;
    return this.rows.indexOf(row);
  }

  _take(row, channel) {
    const one = this.rows[row];
    one.values[channel] = null;
    if (one.values.every((v) => v === null)) this.rows.splice(row, 1);
  }

  remove(row, channel, text) {
    this._remember(text);
    this._take(row, channel);
  }

  /** Move an observation; its time stays that of its row unless it changes. Returns its new row. */
  move(row, channel, t, v, text, merge) {
    this._remember(text, merge);
    if (t === this.rows[row].t) {
      this.rows[row].values[channel] = v;
      return row;
    }
    this._take(row, channel);
    return this._put(channel, t, v);
  }

  setStatic(n, value, text) {
    this._remember(text, `static-${n}`);
    this.static[n] = value;
  }

  body() {
    const points = [];
    this.rows.forEach((row, n) => row.values.forEach((v, c) => { if (v !== null) points.push([n, c, v]); }));
    return { times: this.rows.map((row) => row.t), points, static: this.static };
  }
}

/** Events in the order of their times. */
export class Events extends Editable {
  constructor(given) {
    super(given);
    this.events = given.times.map((t, n) => ({ t, type: given.types[n], features: given.features?.[n] ?? null }));
    this.width = given.features?.[0]?.length ?? 0;
  }

  _copy() {
    return this.events.map((event) => ({ ...event }));
  }

  _restore(events) {
    this.events = events;
  }

  _sort() {
    this.events.sort((a, b) => a.t - b.t);
  }

  add(t, type, text) {
    this._remember(text);
    const event = { t, type, features: this.width ? new Array(this.width).fill(null) : null };
    this.events.push(event);
    this._sort();
    return event;
  }

  remove(event, text) {
    this._remember(text);
    this.events = this.events.filter((one) => one !== event);
  }

  move(event, t, text, merge) {
    const place = this.events.indexOf(event);
    this._remember(text, merge);
    const moved = this.events[place];
    moved.t = t;
    this._sort();
    return moved;
  }

  body() {
    const features = this.width ? this.events.map((event) => event.features ?? new Array(this.width).fill(null)) : null;
    return { times: this.events.map((e) => e.t), types: this.events.map((e) => e.type), features };
  }
}
