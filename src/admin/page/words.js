// The words of the page: events as sentences; numbers, durations and times for people.
"use strict";

// --- events -------------------------------------------------------------------------------------------------------

function scopeOf({ rule, key }) {
  return key ? `${rule}/${key}` : rule;
}

/** The blocks behind a trip: "2 captcha, 1 403_forbidden". */
function blocksOf(event) {
  return Object.entries(event.blocks).map(([type, count]) => `${count} ${type}`).join(", ");
}

/** A site's limit by count: "300 per 5 min, ban of 10 min (2 trips)". */
function wallOf({ requests, window_ms, ban_ms, trips }) {
  return `${number(requests)} per ${span(window_ms / 1000)}, ban of ${span(60 * Math.round(ban_ms / 60000))} (${trips} ${
    trips === 1 ? "trip" : "trips"})`;
}

/** For each event: its kind for the filter, its tone, a word and a sentence. */
const DESCRIBE = {
  blocked: (e) => ["blocked", "bad", e.verdict, `${e.url}${e.status ? ` answered ${e.status}` : ""} in ${scopeOf(e)}`],
  tripped: (e) => ["cooldown", "bad", "paused", `${scopeOf(e)} for ${span(e.length_ms / 1000)}, by ${
    e.by === "hand" ? e.who || "operator" : e.by === "site_limit" ? "the site's own limit" : e.by === "errors" ? "too many errors" : `${e.by} (${e.cause}: ${blocksOf(e)})`}${e.observe ? ", observed only" : ""}${e.ours ? "" : `, reported by ${e.member}`}`],
  cleared: (e) => ["cooldown", "good", "resumed", `${scopeOf(e)}, by ${e.who || e.by}`],
  probe_sent: (e) => ["cooldown", "busy", "probe sent", `${scopeOf(e)}: ${e.url}`],
  observed: (e) => ["cooldown", "busy", "observed", `${scopeOf(e)}: "${e.action}" would have applied to ${e.requests} requests, ${
    span(e.wait_ms / 1000)} in total`],
  probe: (e) => ["cooldown", e.result === "ok" ? "good" : "warn", "probe", `${scopeOf(e)}: ${e.result}`],
  rate_learned: (e) => ["cooldown", "busy", "rate", `${scopeOf(e)}: ${
    e.from ? `${number(e.from)}/s to ` : ""}${number(e.to)}/s, ${WHY[e.why] || e.why}${e.frozen ? ", frozen" : ""}${e.who ? `, by ${e.who}` : ""}`],
  wall_named: (e) => ["cooldown", "busy", "wall", `${scopeOf(e)}: the site allows ${wallOf(e.wall)}`],
  wall_dropped: (e) => ["cooldown", "busy", "wall", `${scopeOf(e)}: the named limit is dropped`],
  places_taken: (e) => ["cooldown", "busy", "all places taken", `${scopeOf(e)}: ${e.under_way} of ${e.parallel} requests under way here, ${e.held} held`],
  user_over: (e) => ["cooldown", "busy", "user's limit", `${scopeOf(e)}: ${e.user} waits ${span(e.wait_ms / 1000)} for a token, ${e.held} held`],
  outside_hours: (e) => ["cooldown", "busy", "outside its hours", `${e.rule}: opens in ${span(e.wait_ms / 1000)}`],
  site_limit: (e) => ["cooldown", "busy", "site limit", `${scopeOf(e)}: the site allows ${number(e.rate)}/s (${e.url})`],
  store_down: (e) => ["other", "bad", "store away", `${e.server}: ${e.reason} (${e.kind}); ${e.advice}`],
  store_up: () => ["other", "good", "store back", "the store answers"],
  reloaded: (e) => ["other", "busy", "reloaded", e.changes.length ? e.changes.join("; ") : "nothing changed"],
  reload_failed: (e) => ["other", "bad", "invalid rule file", "the previous one stays in force"],
  warned: (e) => ["other", "warn", "note", e.what],
  panicked: (e) => ["other", "bad", "panic", e.what],
  started: (e) => ["other", "busy", "started", `${e.rules} ${e.rules === 1 ? "rule" : "rules"}, store ${e.store}`],
  stopping: (e) => ["other", "warn", "stopping", `${e.why}: finishing requests in flight`],
  stopped: () => ["other", "warn", "stopped", ""],
};

function addEvent(event) {
  const row = eventRow(event);
  if (!row) return;
  const list = $("events");
  list.prepend(row);
  while (list.children.length > MOST_EVENTS) list.lastElementChild.remove();
  $("no-events").hidden = true;
}

function eventRow(event) {
  if (!DESCRIBE[event.event]) return null;
  const [kind, tone, word, text] = DESCRIBE[event.event](event);
  const row = element("li", { kind });
  const time = element("time", {}, clock(event.at_ms));
  time.dateTime = new Date(event.at_ms).toISOString();
  const pill = element("span", { tone }, word.replaceAll("_", " "));
  pill.className = "pill";
  row.append(time, pill, element("p", {}, text));
  const why = evidence(event);
  if (why) {
    const line = element("p", {}, why);
    line.className = "why";
    row.append(line);
  }
  return row;
}

function evidence(event) {
  if (event.problems) return event.problems.join("\n\n");
  if (!event.evidence) return "";
  const { signature, vendor, place, excerpt } = event.evidence;
  return `${signature}${vendor ? ` (${vendor})` : ""} in ${place}: ${excerpt}`;
}

// --- words --------------------------------------------------------------------------------------------------------

function element(tag, data, text) {
  const made = document.createElement(tag);
  Object.assign(made.dataset, data);
  if (text !== undefined) made.textContent = text;
  return made;
}

function number(value) {
  // A request an hour is not 0/s.
  if (value > 0 && value < 0.1) return Number(value).toLocaleString("en", { maximumSignificantDigits: 2 });
  return Number(value).toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 1 });
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function count(value) {
  return value.toLocaleString("en");
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

function span(seconds) {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}
