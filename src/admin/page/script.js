// Tidegate's status page. One stream (fetch, not EventSource: it may need a token) brings a snapshot each second,
// the plots every few seconds and each event as it happens. Everything is written as text, never as markup.
"use strict";

const VERDICTS = ["ok", "403_forbidden", "429_rate_limited", "captcha", "cloudflare_challenge", "blank_page",
  "connection_error", "timeout"];
const MOST_EVENTS = 300; // rows kept on the page; the API has the rest
const MOST_DOTS = 8; // longer streaks are told as a number
const PLOT = { width: 600, height: 90, top: 14 };

const $ = (id) => document.getElementById(id);
const cards = new Map(); // scope name -> { root, parts, scope, received }
let token = sessionStorage.getItem("tidegate-token") || "";
let lastId = 0;
let member = null;
let plots = { points: 120, scopes: {} };

// --- talking to the proxy ---------------------------------------------------------------------------------------

function headers(more) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : { ...more };
}

async function listen() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 5000)) {
    if (!token && "token" in document.body.dataset) await askForToken();
    try {
      const response = await fetch("api/v1/events?status", {
        headers: headers({ Accept: "text/event-stream", "Last-Event-ID": String(lastId) }),
      });
      if (response.status === 401) {
        await askForToken();
        continue;
      }
      if (!response.ok) throw new Error(`status ${response.status}`);
      await read(response.body.getReader(), () => { wait = 500; });
    } catch {
      // Told below: the proxy restarts, or the network is away.
    }
    health("bad", "no connection");
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function read(reader, alive) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    rest += decoder.decode(value, { stream: true });
    const messages = rest.split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const fields = Object.fromEntries(message.split("\n").map((line) => {
        const at = line.indexOf(":");
        return [line.slice(0, at), line.slice(at + 1).trimStart()];
      }));
      if (!fields.data) continue;
      if (handle(fields.event, JSON.parse(fields.data)) === "restart") {
        await reader.cancel();
        return;
      }
    }
  }
}

function handle(kind, data) {
  if (kind === "status") return showStatus(data);
  if (kind === "plots") {
    plots = data;
    for (const card of cards.values()) drawPlot(card);
  } else if (kind === "lost") {
    addEvent({ event: "warned", at_ms: Date.now(), what: `${data} events were too fast for this page` });
  } else {
    lastId = Math.max(lastId, data.id);
    addEvent(data);
  }
  return undefined;
}

async function change(card, part, method, body) {
  const path = card.scope.key ? `${card.scope.rule}/${card.scope.key}` : card.scope.rule;
  const buttons = card.root.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const response = await fetch(`api/v1/scopes/${path.split("/").map(encodeURIComponent).join("/")}/${part}`, {
      method, headers: headers({ "Content-Type": "application/json" }), body: body && JSON.stringify(body),
    });
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      addEvent({ event: "warned", at_ms: Date.now(), what: problem.detail || `status ${response.status}` });
    }
  } catch {
    addEvent({ event: "warned", at_ms: Date.now(), what: "the proxy did not answer" });
  }
  buttons.forEach((button) => { button.disabled = false; });
}

function askForToken() {
  token = "";
  $("login").hidden = false;
  health("warn", "token needed");
  $("token").focus();
  return new Promise((done) => {
    $("login").addEventListener("submit", (event) => {
      event.preventDefault();
      token = $("token").value.trim();
      sessionStorage.setItem("tidegate-token", token);
      $("token").value = "";
      $("login").hidden = true;
      done();
    }, { once: true });
  });
}

// --- the snapshot -------------------------------------------------------------------------------------------------

function health(tone, text) {
  const pill = $("health");
  if (pill.textContent !== text) pill.textContent = text;
  pill.dataset.tone = tone;
}

function fact(name, text) {
  document.querySelectorAll(`[data-fact="${name}"]`).forEach((element) => { element.textContent = text; });
}

function showStatus(status) {
  if (member !== null && member !== status.member) { // another process: its events count from 1 again
    member = status.member;
    lastId = 0;
    $("events").replaceChildren();
    return "restart";
  }
  member = status.member;
  if (!status.ready) health("bad", "not ready");
  else if (!status.store.up) health("warn", `store away: ${status.store.on_failure}`);
  else health("good", "ready");
  fact("listen", status.listen);
  fact("store", status.store.kind + (status.store.up ? "" : " (away)"));
  fact("members", status.members);
  document.body.dataset.fleet = status.members > 1 ? "yes" : "no";
  fact("clients", status.client_connections);
  fact("sites", status.upstream_connections);
  fact("uptime", span(status.uptime_s));
  fact("version", `Tidegate ${status.version}, member ${status.member}`);
  fact("config", `${status.config.file || "built-in defaults"}, since ${clock(status.config.loaded_ms)}`);
  document.querySelectorAll("[data-proxy]").forEach((e) => { e.textContent = `http://${status.listen}`; });
  showNotices(status);
  showScopes(status);
  return undefined;
}

function showNotices(status) {
  const notices = [];
  if (!status.store.up) {
    const meanwhile = { local: "each member keeps to its share of the rate", open: "requests pass", closed: "requests are refused" };
    notices.push(["warn", `The store is away: ${meanwhile[status.store.on_failure] || "decisions are local"} until it is back.`]);
  }
  if (status.config.problems.length) {
    notices.push(["bad", `The rule file as it is now is bad; the one before is in force.\n\n${status.config.problems.join("\n\n")}`]);
  }
  if (status.config.needs_restart.length) {
    notices.push(["warn", `Changed, but only a restart puts it in force: ${status.config.needs_restart.join(", ")}`]);
  }
  const key = JSON.stringify(notices);
  if ($("notices").dataset.key === key) return;
  $("notices").dataset.key = key;
  $("notices").replaceChildren(...notices.map(([tone, text]) => element("div", { tone }, text)));
}

function showScopes(status) {
  const names = new Set();
  for (const scope of status.scopes) {
    const name = scope.key ? `${scope.rule}/${scope.key}` : scope.rule;
    names.add(name);
    if (!cards.has(name)) cards.set(name, newCard(name));
    showScope(cards.get(name), scope);
  }
  for (const [name, card] of cards) {
    if (!names.has(name)) {
      card.root.remove();
      cards.delete(name);
    }
  }
  // Cards move only when nobody is working with one.
  if (!$("scopes").contains(document.activeElement)) {
    const closed = (card) => Number(card.scope.state === "cooling" || card.scope.state === "probing");
    const shown = [...names].map((name) => cards.get(name));
    shown.sort((a, b) => closed(b) - closed(a) || a.name.localeCompare(b.name));
    const order = shown.map((card) => card.root);
    if (order.some((root, i) => $("scopes").children[i] !== root)) $("scopes").replaceChildren(...order);
  }
  $("no-scopes").hidden = names.size > 0;
  const more = status.scopes_total - status.scopes.length;
  $("more-scopes").hidden = more <= 0;
  $("more-scopes").textContent = `and ${more} calmer scopes`;
}

function newCard(name) {
  const root = $("scope-template").content.firstElementChild.cloneNode(true);
  const parts = {};
  root.querySelectorAll("[data-part]").forEach((part) => { parts[part.dataset.part] = part; });
  root.querySelector("h3").textContent = name;
  root.dataset.scope = name;
  const select = root.querySelector("select");
  select.setAttribute("aria-label", `Hold ${name} back for`);
  const card = { name, root, parts, scope: null, received: 0 };
  root.querySelector(".trip").addEventListener("click", () => change(card, "cooldown", "POST", { seconds: Number(select.value) }));
  root.querySelector(".clear").addEventListener("click", () => change(card, "cooldown", "DELETE"));
  const rate = root.querySelector(".learned input");
  rate.setAttribute("aria-label", `Rate of ${name}, per second`);
  root.querySelector(".set").addEventListener("click", () => {
    if (Number(rate.value) > 0) change(card, "rate", "POST", { rate: Number(rate.value) });
    rate.value = "";
  });
  root.querySelector(".freeze").addEventListener("click", () => {
    change(card, "rate", "POST", { frozen: !card.scope.learned.frozen });
  });
  root.querySelector(".forget").addEventListener("click", () => change(card, "rate", "DELETE"));
  $("scopes").append(root);
  return card;
}

const STATES = {
  open: ["good", "open"], cooling: ["bad", "cooling down"], probing: ["warn", "probing"], ramping: ["busy", "speeding up"],
};

function showScope(card, scope) {
  const before = card.scope;
  card.scope = scope;
  card.received = performance.now();
  const [tone, word] = STATES[scope.state] || ["quiet", scope.state];
  const state = scope.observe ? `${word} (observe)` : word;
  if (before && before.state !== scope.state) $("say").textContent = `${card.name}: ${word}`;
  card.root.dataset.state = scope.state;
  card.parts.state.dataset.tone = tone;
  card.parts.state.textContent = state;
  card.parts.held.textContent = count(scope.held);
  card.parts.limit.textContent = scope.rate_limit === null ? "none" : `${number(scope.rate_current)}/s`;
  const lowered = scope.rate_limit !== null && scope.rate_current < scope.rate_limit;
  card.parts["limit-label"].textContent = lowered ? `of ${number(scope.rate_limit)}/s` : "limit";
  card.root.querySelector(".clear").hidden = scope.state === "open";
  const canTrip = scope.after !== null;
  card.root.querySelector(".trip").hidden = !canTrip;
  card.root.querySelector("select").hidden = !canTrip;
  showLearned(card, scope.learned);
  showStreak(card, scope);
  showMix(card, scope.verdicts);
  countDown(card);
  drawPlot(card);
}

/** Why a learned rate is what it is. */
const WHY = {
  start: "as the rule file says", sure_trip: "lowered by a sure sign", doubtful_trip: "lowered by plain refusals",
  try_failed: "back at the mark: more was blocked", eased: "eased by a sure sign", climb: "climbing: nothing was blocked",
  try: "trying a little above the mark", hand: "set by hand", forgotten: "forgotten by hand",
  recalled: "as a member remembered it", bounds: "moved by the rule file",
};

function showLearned(card, learned) {
  card.root.querySelector(".learned").hidden = !learned;
  if (!learned) return;
  const mark = learned.mark === null ? "no limit met yet" : `the site bears ${number(learned.mark)}/s`;
  card.parts.learned.textContent =
    `Learned ${number(learned.rate)}/s, ${learned.frozen ? "frozen" : WHY[learned.why] || learned.why}; ${mark}`;
  card.root.querySelector(".freeze").textContent = learned.frozen ? "Thaw" : "Freeze";
}

function showStreak(card, scope) {
  const { streak, "streak-label": label } = card.parts;
  if (scope.after === null) {
    streak.textContent = "–";
    label.textContent = "no cooldown";
    return;
  }
  label.textContent = `streak ${number(scope.streak)} of ${number(scope.after)}`;
  const dots = Math.ceil(scope.after);
  if (dots > MOST_DOTS) {
    streak.textContent = number(scope.streak);
    return;
  }
  if (streak.children.length !== dots) {
    streak.replaceChildren(...Array.from({ length: dots }, () => document.createElement("i")));
  }
  [...streak.children].forEach((dot, i) => dot.classList.toggle("on", i < scope.streak));
}

function showMix(card, verdicts) {
  const seen = VERDICTS.filter((verdict) => verdicts[verdict]);
  const { mix, legend } = card.parts;
  const key = seen.join();
  if (mix.dataset.key !== key) {
    mix.dataset.key = key;
    mix.replaceChildren(...seen.map((verdict) => element("i", { verdict })));
    legend.replaceChildren(...seen.map((verdict) => {
      const item = element("li", {});
      item.append(element("i", { verdict }), `${verdict.replaceAll("_", " ")} `, document.createElement("b"));
      return item;
    }));
    if (!seen.length) legend.append(element("li", {}, "no answers yet"));
  }
  seen.forEach((verdict, i) => {
    mix.children[i].style.flexGrow = verdicts[verdict];
    legend.children[i].querySelector("b").textContent = count(verdicts[verdict]);
  });
}

/** What is left of a cooldown or a ramp, counted on between two snapshots. */
function countDown(card) {
  const scope = card.scope;
  const left = scope.remaining_ms - (performance.now() - card.received);
  const shown = scope.state !== "open" && scope.remaining_ms > 0;
  const seconds = Math.max(0, Math.ceil(left / 1000));
  const text = shown ? `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}` : "";
  if (card.parts.countdown.textContent !== text) card.parts.countdown.textContent = text;
}

function drawPlot(card) {
  const { sent: points, rate: rates, mark: marks } = plots.scopes[card.name] || { sent: [], rate: [], mark: [] };
  const highest = Math.max(...points, ...rates, ...marks, 0.1);
  // A ceiling far above all that goes on would leave the rest flat.
  const limit = card.scope.rate_limit !== null && card.scope.rate_limit <= 5 * highest ? card.scope.rate_limit : null;
  const top = Math.max(limit || 0, highest) * 1.1;
  const y = (rate) => PLOT.height - (rate / top) * (PLOT.height - PLOT.top);
  const step = PLOT.width / (plots.points - 1);
  const from = PLOT.width - (points.length - 1) * step;
  const line = points.map((rate, i) => `${i ? "L" : "M"}${(from + i * step).toFixed(1)} ${y(rate).toFixed(1)}`).join("");
  const svg = card.root.querySelector(".plot");
  const pathOf = (values) => values.map((value, i) => value === null ? "" :
    `${i && values[i - 1] !== null ? "L" : "M"}${(from + i * step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  svg.querySelector(".rate").setAttribute("d", pathOf(rates));
  svg.querySelector(".mark").setAttribute("d", pathOf(marks));
  svg.querySelector(".line").setAttribute("d", line);
  svg.querySelector(".area").setAttribute("d", line && `${line}V${PLOT.height}H${from.toFixed(1)}Z`);
  const latest = points.at(-1);
  card.parts.now.textContent = latest === undefined ? "–" : number(latest);
  svg.querySelector("title").textContent =
    `Requests a second over the last ten minutes, now ${latest === undefined ? "unknown" : number(latest)}${
      card.scope.learned ? `; with the learned rate, now ${number(card.scope.learned.rate)}, and its mark` : ""}`;
  const rule = svg.querySelector(".limit");
  const tag = card.root.querySelector(".limit-tag");
  rule.style.display = limit === null ? "none" : "";
  tag.hidden = limit === null;
  if (limit !== null) {
    rule.setAttribute("y1", y(limit));
    rule.setAttribute("y2", y(limit));
    tag.style.top = `${y(limit)}px`;
    tag.textContent = `${number(limit)}/s`;
  }
}

// --- what happened ------------------------------------------------------------------------------------------------

function scopeOf(event) {
  return event.key ? `${event.rule}/${event.key}` : event.rule;
}

/** The blocks behind a trip: "2 captcha, 1 403_forbidden". */
function blocksOf(event) {
  return Object.entries(event.blocks).map(([type, count]) => `${count} ${type}`).join(", ");
}

/** Kind for the filter, tone, word, sentence. */
const TELL = {
  blocked: (e) => ["blocked", "bad", e.verdict, `${e.url}${e.status ? ` answered ${e.status}` : ""} in ${scopeOf(e)}`],
  tripped: (e) => ["cooldown", "bad", "cooldown", `${scopeOf(e)} stands still for ${span(e.length_ms / 1000)}, tripped by ${
    e.by === "hand" ? "hand" : `${e.by} (${e.cause}: ${blocksOf(e)})`}${e.observe ? ", observed only" : ""}${e.ours ? "" : `, told by ${e.member}`}`],
  cleared: (e) => ["cooldown", "good", "open again", `${scopeOf(e)}, by ${e.by}`],
  probe_sent: (e) => ["cooldown", "busy", "probe goes", `${scopeOf(e)}: ${e.url}`],
  observed: (e) => ["cooldown", "busy", "observed", `${scopeOf(e)} would have met "${e.action}": ${e.requests} requests, ${
    span(e.wait_ms / 1000)} in all`],
  probe: (e) => ["cooldown", e.result === "ok" ? "good" : "warn", "probe", `${scopeOf(e)}: ${e.result}`],
  rate_learned: (e) => ["cooldown", "busy", "rate", `${scopeOf(e)}: ${
    e.from ? `${number(e.from)}/s to ` : ""}${number(e.to)}/s, ${WHY[e.why] || e.why}${e.frozen ? ", frozen" : ""}`],
  store_down: (e) => ["other", "warn", "store away", e.reason],
  store_up: () => ["other", "good", "store back", "the store answers"],
  reloaded: (e) => ["other", "busy", "reloaded", e.changes.length ? e.changes.join("; ") : "nothing changed"],
  reload_failed: (e) => ["other", "bad", "bad rule file", "the one before stays in force"],
  warned: (e) => ["other", "warn", "note", e.what],
  panicked: (e) => ["other", "bad", "panic", e.what],
  started: (e) => ["other", "busy", "started", `${e.rules} ${e.rules === 1 ? "rule" : "rules"}, store ${e.store}`],
  stopping: (e) => ["other", "warn", "stopping", `${e.why}: finishing what is in flight`],
  stopped: () => ["other", "warn", "stopped", ""],
};

function addEvent(event) {
  if (!TELL[event.event]) return;
  const [kind, tone, word, text] = TELL[event.event](event);
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
  const list = $("events");
  list.prepend(row);
  while (list.children.length > MOST_EVENTS) list.lastElementChild.remove();
  $("no-events").hidden = true;
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
  return Number(value).toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 1 });
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

$("filter").addEventListener("change", (event) => { $("events").dataset.show = event.target.value; });
setInterval(() => cards.forEach(countDown), 250);
listen();
