// Tidegate's status page. It asks for the fleet once a second, and one stream (fetch, not EventSource: it may need a
// token) brings each event as it happens. Everything is written as text, never as markup.
"use strict";

const VERDICTS = ["ok", "403_forbidden", "429_rate_limited", "captcha", "cloudflare_challenge", "blank_page",
  "connection_error", "timeout"];
const MOST_EVENTS = 300; // rows kept on the page; the API has the rest
const ROWS = 50; // scopes at a time
const EVERY = 1000; // milliseconds between two looks
const PLOT = { width: 600, height: 90, top: 14 };

const $ = (id) => document.getElementById(id);
const rows = new Map(); // scope name -> { root, cells, scope, received }
const asked = { q: "", state: "", rule: "", member: "", sort: "", offset: 0 };
let token = sessionStorage.getItem("tidegate-token") || "";
let lastId = 0;
let member = null;
let open = null; // name of the scope whose detail is shown
let login = null;

// --- talking to the proxy ---------------------------------------------------------------------------------------

function headers(more) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : { ...more };
}

/** The answer as JSON; asks for the token if the proxy wants one. */
async function ask(path) {
  for (;;) {
    if (!token && "token" in document.body.dataset) await askOnce();
    const response = await fetch(path, { headers: headers() });
    if (response.status === 401) {
      await askOnce();
      continue;
    }
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  }
}

/** One question for the token, however many wait for it. */
function askOnce() {
  login ||= askForToken().then(() => { login = null; });
  return login;
}

async function watch() {
  for (;;) {
    await look();
    await new Promise((done) => setTimeout(done, EVERY));
  }
}

async function look() {
  try {
    const query = new URLSearchParams({ ...asked, limit: ROWS });
    const asks = query.toString();
    const fleet = await ask(`api/v1/fleet?${asks}`);
    if (asks !== new URLSearchParams({ ...asked, limit: ROWS }).toString()) return;
    showFleet(fleet);
    if (open !== null) await showDetail();
  } catch {
    // The proxy restarts, or the network is away.
    health("bad", "no connection");
  }
}

async function listen() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 5000)) {
    if (!token && "token" in document.body.dataset) await askOnce();
    try {
      const response = await fetch("api/v1/events", {
        headers: headers({ Accept: "text/event-stream", "Last-Event-ID": String(lastId) }),
      });
      if (response.status === 401) {
        await askOnce();
        continue;
      }
      if (response.ok) await read(response.body.getReader(), () => { wait = 500; });
    } catch {
      // `look` says that there is no connection.
    }
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
      handle(fields.event, JSON.parse(fields.data));
    }
  }
}

function handle(kind, data) {
  if (kind === "lost") {
    addEvent({ event: "warned", at_ms: Date.now(), what: `${data} events were too fast for this page` });
    return;
  }
  if (data.id < lastId) $("events").replaceChildren(); // another process: its events count from 1 again
  lastId = data.id;
  addEvent(data);
}

/** Changes something of the open scope, once the operator has confirmed it. */
async function change(question, verb, part, method, body) {
  const who = await confirmed(question, verb);
  if (who === null) return;
  const signed = { ...body, who: who || undefined };
  let problem = null;
  try {
    const response = await fetch(`api/v1/scopes/${path(open)}/${part}`, {
      method, headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(signed),
    });
    if (!response.ok) problem = (await response.json().catch(() => ({}))).detail || `status ${response.status}`;
  } catch {
    problem = "the proxy did not answer";
  }
  if (problem) addEvent({ event: "warned", at_ms: Date.now(), what: problem });
  await look();
}

function path(name) {
  return name.split("/").map(encodeURIComponent).join("/");
}

/** The operator's name, or null if they cancel. */
function confirmed(question, verb) {
  const dialog = $("confirm");
  $("question").textContent = question;
  $("sure").textContent = verb;
  $("who").value = localStorage.getItem("tidegate-who") || "";
  dialog.returnValue = "";
  $("sure").value = "sure";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "sure") return done(null);
      localStorage.setItem("tidegate-who", $("who").value.trim());
      return done($("who").value.trim());
    }, { once: true });
  });
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

// --- the fleet ----------------------------------------------------------------------------------------------------

function health(tone, text) {
  const pill = $("health");
  if (pill.textContent !== text) pill.textContent = text;
  pill.dataset.tone = tone;
}

function fact(name, text) {
  document.querySelectorAll(`[data-fact="${name}"]`).forEach((element) => { element.textContent = text; });
}

function showFleet(fleet) {
  if (member !== null && member !== fleet.member) lastId = 0;
  member = fleet.member;
  const { summary, store } = fleet;
  const away = !store.up;
  if (away) health("bad", store.reached ? "store away" : "store never reached");
  else if (!fleet.ready) health("bad", "not ready");
  else if (summary.cooling) health("warn", `${count(summary.cooling)} cooling`);
  else health("good", "ready");
  announce(away ? "store away" : summary.cooling ? `${count(summary.cooling)} cooling` : "", away);
  fact("cooling", `${count(summary.cooling)} of ${count(summary.scopes)}${fleet.more ? "+" : ""}`);
  fact("held", count(summary.held));
  fact("requests", number(summary.requests_per_s));
  fact("pages", count(summary.pages_per_min));
  fact("blocks", count(summary.blocks_per_min));
  fact("members", `${summary.members_up} of ${fleet.members.length} up`);
  fact("store", store.kind + (away ? " (away)" : ""));
  fact("version", `Tidegate ${fleet.version}, member ${fleet.member}`);
  fact("config", `${fleet.config.file || "built-in defaults"}, since ${clock(fleet.config.loaded_ms)}`);
  document.querySelectorAll("[data-proxy]").forEach((e) => { e.textContent = `http://${fleet.listen}`; });
  showNotices(fleet);
  showScopes(fleet);
  showMembers(fleet);
  options($("rule"), fleet.rules.map((name) => [name, name]), "every rule");
  options($("member"), fleet.members.map((m) => [m.name, m.address || m.name]), "every member");
}

/** The tab says when something needs a person. */
function announce(what, bad) {
  const title = what ? `${what} · Tidegate` : "Tidegate";
  if (document.title === title) return;
  document.title = title;
  const colour = bad ? "%23b3352b" : what ? "%23d68a1c" : "%231f7a8c";
  const dot = what ? `%3Ccircle cx='24' cy='8' r='7' fill='${colour}'/%3E` : "";
  $("icon").href = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Cpath "
    + "d='M4 29V15a12 12 0 0 1 24 0v14M4 23q4-4 8 0t8 0 8 0' fill='none' "
    + `stroke='${colour}' stroke-width='3' stroke-linecap='round'/%3E${dot}%3C/svg%3E`;
}

function options(select, pairs, all) {
  const key = JSON.stringify(pairs);
  if (select.dataset.key === key || document.activeElement === select) return;
  select.dataset.key = key;
  const { value } = select;
  select.replaceChildren(...[["", all], ...pairs].map(([name, text]) => {
    const made = element("option", {}, text);
    made.value = name;
    return made;
  }));
  select.value = value;
}

function showNotices(fleet) {
  const notices = [];
  const { trouble } = fleet.store;
  if (!fleet.store.up && trouble) {
    notices.push(["bad", `The store ${fleet.store.server} is away (${trouble.kind}): ${trouble.reason}\n${
      capital(trouble.advice)}.\nMeanwhile ${trouble.meanwhile}.`]);
  }
  if (!fleet.whole) {
    notices.push(["warn", `This is only what this member knows; the rest of the fleet is not shown.${
      fleet.unread ? ` ${capital(fleet.unread)}.` : ""}`]);
  }
  if (fleet.config.problems.length) {
    notices.push(["bad", `The rule file was rejected; the previous one is in force.\n\n${fleet.config.problems.join("\n\n")}`]);
  }
  if (fleet.config.needs_restart.length) {
    notices.push(["warn", `Changed, but needs a restart: ${fleet.config.needs_restart.join(", ")}`]);
  }
  const key = JSON.stringify(notices);
  if ($("notices").dataset.key === key) return;
  $("notices").dataset.key = key;
  $("notices").replaceChildren(...notices.map(([tone, text]) => element("div", { tone }, text)));
}

const STATES = {
  open: ["good", "open"], cooling: ["bad", "paused"], probing: ["warn", "probing"], ramping: ["busy", "speeding up"],
  outside_hours: ["quiet", "outside its hours"],
};

function showScopes(fleet) {
  const names = new Set(fleet.scopes.map(scopeOf));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    row.root.remove();
    rows.delete(name);
  }
  for (const scope of fleet.scopes) {
    const name = scopeOf(scope);
    if (!rows.has(name)) rows.set(name, newRow(name));
    showRow(rows.get(name), scope);
  }
  // Rows move only if nobody is working with one.
  if (!$("scopes").contains(document.activeElement)) {
    const order = fleet.scopes.map((scope) => rows.get(scopeOf(scope)).root);
    if (order.some((root, i) => $("scopes").children[i] !== root)) $("scopes").replaceChildren(...order);
  }
  const total = fleet.scopes_total;
  $("no-scopes").hidden = total > 0;
  const filtered = asked.q || asked.state || asked.rule || asked.member;
  $("no-scopes").textContent = filtered ? "No scope matches." : "No scopes yet. The first request creates one.";
  const last = asked.offset + fleet.scopes.length;
  const range = total ? `${count(asked.offset + 1)} to ${count(last)} of ${count(total)}` : "";
  if ($("range").textContent !== range) $("range").textContent = range;
  $("back").disabled = asked.offset === 0;
  $("next").disabled = last >= total;
  $("pager").hidden = total <= ROWS && asked.offset === 0;
}

function newRow(name) {
  const root = element("tr", { scope: name });
  const cells = {};
  for (const [cell, kind] of [["name", ""], ["state", ""], ["sent", "more number"], ["rate", "more number"],
    ["held", "number"], ["streak", "more number"]]) {
    cells[cell] = element(cell === "name" ? "th" : "td", {});
    cells[cell].className = kind;
    root.append(cells[cell]);
  }
  cells.name.scope = "row";
  const button = element("button", {}, name);
  button.type = "button";
  button.className = "open";
  button.addEventListener("click", () => showScope(name));
  cells.name.append(button);
  const [pill, left] = [element("span", {}), element("span", { part: "countdown" })];
  pill.className = "pill";
  cells.state.append(pill, " ", left);
  root.addEventListener("click", (event) => { if (event.target !== button) button.click(); });
  $("scopes").append(root);
  return { name, root, cells, pill, left, scope: null, received: 0 };
}

function showRow(row, scope) {
  const before = row.scope;
  row.scope = scope;
  row.received = performance.now();
  const [tone, word] = STATES[scope.state] || ["quiet", scope.state];
  if (before && before.state !== scope.state) $("say").textContent = `${row.name}: ${word}`;
  row.root.dataset.state = scope.state;
  row.pill.dataset.tone = tone;
  row.pill.textContent = scope.observe ? `${word} (observe)` : word;
  row.cells.sent.textContent = number(scope.sent_per_s);
  row.cells.rate.textContent = rateOf(scope);
  row.cells.held.textContent = count(scope.held);
  row.cells.streak.textContent = scope.after === null ? "–" : `${number(scope.streak)} of ${number(scope.after)}`;
  countDown(row);
}

function rateOf(scope) {
  if (scope.rate_current === null) return scope.rate_limit === null ? "–" : "not enforced";
  const lowered = !scope.rate_auto && scope.rate_limit !== null && scope.rate_current < scope.rate_limit;
  return `${number(scope.rate_current)}/s${scope.rate_auto ? " (auto)" : lowered ? ` of ${number(scope.rate_limit)}/s` : ""}`;
}

/** What is left of the cooldown, as minutes and seconds. */
function countDown(row) {
  const left = Math.max(0, row.scope.remaining_ms - (performance.now() - row.received));
  const seconds = Math.ceil(left / 1000);
  const text = seconds && row.scope.state !== "open"
    ? `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}` : "";
  if (row.left.textContent !== text) row.left.textContent = text;
}

function showMembers(fleet) {
  const shown = fleet.members.map((m) => {
    const row = element("tr", { member: m.name });
    const [tone, state] = !m.up ? ["bad", "not heard"] : !m.ready ? ["bad", "not ready"]
      : !m.store_up ? ["bad", "store away"] : m.bad_file ? ["warn", "rule file rejected"] : ["good", "up"];
    const pill = element("span", { tone }, state);
    pill.className = "pill";
    const cells = [m.address || m.name, pill, `${span(m.heard_ms / 1000)} ago`, number(m.requests_per_s),
      count(m.held), m.version];
    cells.forEach((content, i) => {
      const cell = element(i ? "td" : "th", {});
      if (!i) cell.scope = "row";
      cell.className = ["", "", "more number", "number", "more number", "more"][i];
      cell.append(content);
      row.append(cell);
    });
    return row;
  });
  $("members").replaceChildren(...shown);
}

// --- one scope ----------------------------------------------------------------------------------------------------

const part = (name) => $("detail").querySelector(`[data-part="${name}"]`);
let detail = null;

async function showScope(name) {
  open = name;
  $("detail-name").textContent = name;
  ["facts", "trip", "legend", "learned", "events"].forEach((each) => part(each).replaceChildren());
  if (!$("detail").open) $("detail").showModal();
  await showDetail().catch(() => health("bad", "no connection"));
}

async function showDetail() {
  const name = open;
  const seen = await ask(`api/v1/scopes/${path(name)}`);
  if (open !== name) return;
  detail = seen;
  const { scope } = seen;
  const [tone, word] = STATES[scope.state] || ["quiet", scope.state];
  part("state").dataset.tone = tone;
  part("state").textContent = scope.remaining_ms && scope.state !== "open"
    ? `${word}, ${span(scope.remaining_ms / 1000)} left` : word;
  showFacts(scope);
  part("trip").textContent = tripOf(scope.trip);
  showLearned(scope.learned);
  drawPlot(seen);
  const legend = VERDICTS.filter((verdict) => (seen.verdicts || {})[verdict]);
  part("legend").replaceChildren(...legend.map((verdict) => {
    const item = element("li", {}, `${verdict} ${count(seen.verdicts[verdict])}`);
    item.prepend(element("i", { verdict }));
    return item;
  }));
  $("resume").hidden = scope.state === "open";
  [$("pause"), $("length"), $("length").previousElementSibling].forEach((e) => { e.hidden = scope.after === null; });
  part("events").replaceChildren(...seen.events.map(eventRow).filter(Boolean));
}

function showFacts(scope) {
  const facts = [["sent by the fleet", `${number(scope.sent_per_s)}/s`], ["rate", rateOf(scope)],
    ...scope.site_rate ? [["the site allows", `${number(scope.site_rate)}/s`]] : [],
    ...scope.parallel ? [["under way", `${count(scope.under_way)} of ${count(scope.parallel)}`]] : [],
    ...scope.each_user ? [["each user", limitsOf(scope.each_user)]] : [],
    ...scope.via ? [["through", scope.via]] : [],
    ...scope.blocked_member ? [["blocked more than the others", blockedMember(scope.blocked_member)]] : [],
    ["held", count(scope.held)], ["members with waiting requests", count(scope.members_waiting)],
    ["streak", scope.after === null ? "no cooldown" : `${number(scope.streak)} of ${number(scope.after)}`]];
  part("facts").replaceChildren(...facts.map(([name, value]) => {
    const pair = document.createElement("div");
    pair.append(element("dt", {}, name), element("dd", {}, value));
    return pair;
  }));
}

/** The limits of each user, such as "2/s, 10,000 per 1 d". */
function limitsOf({ rate, quotas }) {
  const windows = quotas.map(({ tokens, seconds }) => `${count(tokens)} per ${span(seconds)}`);
  return [...rate ? [`${number(rate)}/s`] : [], ...windows].join(", ");
}

/** A member that may sit behind a blocked exit. */
function blockedMember({ name, share, others }) {
  return `member ${name}: ${Math.round(share * 100)} % blocks, the others ${Math.round(others * 100)} %`;
}

/** Why a scope tripped, in sentences. */
function tripOf(trip) {
  if (!trip) return "No recent cooldown.";
  const when = trip.at_ms ? ` at ${clock(trip.at_ms)}` : "";
  if (trip.by === "hand") return `Paused by ${trip.who || "hand"}${when}${trip.member ? ` on member ${trip.member}` : ""}.`;
  if (trip.by === "site_limit") return `Paused${when} because the site's own limit was used up.`;
  if (trip.by === "errors") return `Paused${when} because the limit of errors was used up.`;
  const answer = trip.url ? ` ${trip.url} answered${trip.status ? ` ${trip.status}` : ""}.` : "";
  return `Tripped by ${trip.by}${when} (${trip.cause}: ${blocksOf(trip)}).${answer}${
    trip.evidence ? ` Evidence: ${trip.evidence}.` : ""}${trip.member ? ` Reported by member ${trip.member}.` : ""}`;
}

/** Why a learned rate is what it is. */
const WHY = {
  start: "from the rule file", sure_trip: "lowered by a certain block", doubtful_trip: "lowered by plain refusals",
  try_failed: "back at the mark: a higher rate was blocked", eased: "eased by a certain block",
  test: "half the rate: is it a wall?", no_wall: "blocks are as frequent at half the rate: no wall", climb: "climbing: nothing was blocked",
  try: "trying a little above the mark", hand: "set manually", forgotten: "forgotten manually",
  recalled: "restored by a member", bounds: "changed by the rule file",
  overload: "lowered: answers came late or failed", relieved: "raised: the site has caught up",
  no_relief: "answers are as late at half the rate: not the load",
};

function showLearned(learned) {
  $("rate-form").hidden = !learned;
  part("learned").hidden = !learned;
  if (!learned) return;
  const mark = learned.mark === null ? "no limit met yet" : `the site tolerates ${number(learned.mark)}/s`;
  part("learned").textContent =
    `Learned ${number(learned.rate)}/s, ${learned.frozen ? "frozen" : WHY[learned.why] || learned.why}${
      learned.who ? ` by ${learned.who}` : ""}; ${mark}.${learned.wall ? ` The wall: ${wallOf(learned.wall)}.` : ""}`;
  $("freeze").textContent = learned.frozen ? "Thaw" : "Freeze";
}

function drawPlot({ plot, scope, points: most }) {
  const { sent: points, rate: rates, mark: marks } = plot || { sent: [], rate: [], mark: [] };
  const highest = Math.max(...points, ...rates, ...marks, 0.1);
  // A ceiling far above everything else would leave the rest flat.
  const limit = !scope.rate_auto && scope.rate_limit !== null && scope.rate_limit <= 5 * highest ? scope.rate_limit : null;
  const top = Math.max(limit || 0, highest) * 1.1;
  const y = (rate) => PLOT.height - (rate / top) * (PLOT.height - PLOT.top);
  const step = PLOT.width / (most - 1);
  const from = PLOT.width - (points.length - 1) * step;
  const pathOf = (values) => values.map((value, i) => value === null ? "" :
    `${i && values[i - 1] !== null ? "L" : "M"}${(from + i * step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const svg = $("detail").querySelector(".plot");
  const line = pathOf(points);
  svg.querySelector(".rate").setAttribute("d", pathOf(rates));
  svg.querySelector(".mark").setAttribute("d", pathOf(marks));
  svg.querySelector(".line").setAttribute("d", line);
  svg.querySelector(".area").setAttribute("d", line && `${line}V${PLOT.height}H${from.toFixed(1)}Z`);
  const latest = points.at(-1);
  svg.querySelector("title").textContent =
    `Requests a second over the last ten minutes, now ${latest === undefined ? "unknown" : number(latest)}`;
  const rule = svg.querySelector(".limit");
  rule.style.display = limit === null ? "none" : "";
  if (limit !== null) {
    rule.setAttribute("y1", y(limit));
    rule.setAttribute("y2", y(limit));
  }
}

// --- what the operator does -----------------------------------------------------------------------------------------

function askFor(change_) {
  Object.assign(asked, { offset: 0 }, change_);
  look();
}

let typing = 0;
$("q").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => askFor({ q: $("q").value.trim() }), 150);
});
$("tools").addEventListener("submit", (event) => event.preventDefault());
["state", "rule", "member"].forEach((name) => {
  $(name).addEventListener("change", () => askFor({ [name]: $(name).value }));
});
document.querySelectorAll("[data-sort]").forEach((button) => button.addEventListener("click", () => {
  const sort = asked.sort === button.dataset.sort ? "" : button.dataset.sort;
  document.querySelectorAll("[data-sort]").forEach((other) => {
    const chosen = other.dataset.sort === sort;
    const way = sort === "name" ? "ascending" : "descending";
    other.parentElement.setAttribute("aria-sort", chosen ? way : "none");
  });
  askFor({ sort });
}));
$("back").addEventListener("click", () => askFor({ offset: Math.max(0, asked.offset - ROWS) }));
$("next").addEventListener("click", () => askFor({ offset: asked.offset + ROWS }));
$("close").addEventListener("click", () => $("detail").close());
$("detail").addEventListener("close", () => { open = null; });
$("cancel").addEventListener("click", () => $("confirm").close());
$("pause").addEventListener("click", () => {
  const words = $("length").selectedOptions[0].textContent;
  change(`Pause ${open} for ${words}?`, "Pause", "cooldown", "POST", { seconds: Number($("length").value) });
});
$("resume").addEventListener("click", () => change(`Resume ${open}?`, "Resume", "cooldown", "DELETE"));
$("rate-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const rate = Number($("new-rate").value);
  if (rate > 0) change(`Set the rate of ${open} to ${number(rate)}/s?`, "Set", "rate", "POST", { rate });
});
$("freeze").addEventListener("click", () => {
  const frozen = !detail.scope.learned.frozen;
  const verb = frozen ? "Freeze" : "Thaw";
  change(`${verb} the rate of ${open}?`, verb, "rate", "POST", { frozen });
});
$("forget").addEventListener("click", () => change(`Forget the learned rate of ${open}?`, "Forget", "rate", "DELETE"));
$("filter").addEventListener("change", (event) => { $("events").dataset.show = event.target.value; });
setInterval(() => rows.forEach(countDown), 250);
listen();
watch();
