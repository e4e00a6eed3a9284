// Opens the status page in Chromium, acts like an operator, and prints what the page showed as one JSON object.
//
// Arguments: the page's URL, the admin token or "", the admin URL of the member that trips the cooldown, the proxy's
// URL, the URL of a site's wall.
// `integration-tests/tests/status_page.rs` starts the proxy and checks the result.
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const { launch } = require("./chromium.cjs");

const [url, token, other, proxy, wall] = process.argv.slice(2);
const api = new URL("/api/v1/scopes/shop/cooldown", other).href;
const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
// Longest wait for anything on the page.
const PATIENCE = 20_000;

const seen = { problems: [], outside: [] };
const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };

function watch(page) {
  page.on("console", (line) => {
    if (["error", "warning"].includes(line.type())) seen.problems.push(line.text());
  });
  page.on("pageerror", (error) => seen.problems.push(String(error)));
  page.on("dialog", (dialog) => seen.problems.push(`a dialog: ${dialog.message()}`));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin && !request.url().startsWith("data:")) {
      seen.outside.push(request.url());
    }
  });
}

function throughProxy(target) {
  const { hostname, port } = new URL(proxy);
  return new Promise((done, failed) => {
    const request = http.get({ hostname, port, path: target, headers: { Host: new URL(target).host } });
    request.on("error", failed).on("response", (response) => response.resume().on("end", done));
  });
}

const ROW = '#scopes [data-scope="shop"]';

/** Milliseconds until the row of the rule `shop` is in one of these states. */
async function untilState(page, ...states) {
  const start = performance.now();
  const row = states.map((state) => `${ROW}[data-state="${state}"]`).join();
  await page.locator(row).waitFor({ timeout: PATIENCE });
  return Math.round(performance.now() - start);
}

async function countdown(page) {
  const text = await page.locator(`${ROW} [data-part="countdown"]`).textContent();
  const [minutes, seconds] = text.split(":").map(Number);
  return minutes * 60 + seconds;
}

/** The countdown's next three values, as they change. */
async function runs(page) {
  const values = [await countdown(page)];
  while (values.length < 3) {
    const now = await countdown(page);
    if (now !== values.at(-1)) values.push(now);
    await page.waitForTimeout(50);
  }
  return values;
}

/** Presses a button of the details, and confirms it with a name. */
async function act(page, button, who) {
  await page.locator(button).click();
  await page.locator("#who").fill(who);
  await page.locator("#sure").click();
}

/** Moves the focus there with the Tab key only. */
async function tabTo(page, selector) {
  await page.evaluate(() => document.activeElement.blur());
  for (let presses = 1; presses <= 60; presses++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate((s) => document.activeElement.matches(s), selector)) return presses;
  }
  return null;
}

/** The violations that axe-core (WCAG 2.1 A and AA) finds on the current page. */
async function accessibility(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const only = { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] };
    return (await globalThis.axe.run({ runOnly: only })).violations;
  });
  return found.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.failureSummary} ${node.html}`));
}

async function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}

async function looks(page, name) {
  seen.looks ||= [];
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [400, 768, 1600]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      // Colours may still change from one scheme to the other.
      await page.evaluate(() => Promise.all(document.getAnimations().map((animation) => animation.finished)));
      seen.looks.push({
        colorScheme, width, overflow: await overflow(page), violations: await accessibility(page),
        ground: await page.evaluate(() => getComputedStyle(document.body).backgroundColor),
      });
      const folder = process.env.SCREENSHOTS;
      if (folder) await page.screenshot({ path: `${folder}/${name}-${colorScheme}-${width}.png` });
    }
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}

async function main() {
  const browser = await launch();
  const page = await browser.newPage();
  watch(page);
  await page.goto(url);
  if (token) {
    await page.locator("#token").fill(token);
    await page.keyboard.press("Enter");
  }
  await page.locator('#health[data-tone="good"]').waitFor({ timeout: PATIENCE });
  await untilState(page, "open");
  seen.calm_title = await page.title();

  await fetch(api, { method: "POST", headers, body: JSON.stringify({ seconds: 90, who: "anna" }) });
  seen.shown_ms = await untilState(page, "cooling");
  seen.countdown = await runs(page);
  await page.waitForFunction(() => document.title.includes("cooling"));
  seen.title = await page.title();
  seen.icon = await page.locator("#icon").getAttribute("href");
  seen.members = await page.locator("#members tr").count();
  await looks(page, "table");

  seen.tabs = await tabTo(page, `${ROW} button`);
  seen.focus_shown = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== "none");
  await page.keyboard.press("Enter");
  await page.locator("#resume").waitFor({ timeout: PATIENCE });
  await page.locator("#detail", { hasText: "anna" }).waitFor({ timeout: PATIENCE });
  seen.facts = await page.locator('[data-part="facts"]').innerText();
  seen.why = await page.locator('[data-part="trip"]').textContent();
  await looks(page, "detail");
  await page.locator("#resume").click();
  await page.locator("#cancel").click();
  seen.after_cancel = await page.locator(ROW).getAttribute("data-state");
  await act(page, "#resume", "bob");
  seen.cleared_ms = await untilState(page, "open", "ramping");
  await page.locator("#length").selectOption("300");
  await act(page, "#pause", "bob");
  await untilState(page, "cooling");
  seen.five_minutes = await countdown(page);
  await act(page, "#resume", "bob");
  await untilState(page, "open", "ramping");
  await page.keyboard.press("Escape");

  await throughProxy(wall);
  const row = page.locator('#events li[data-kind="blocked"]').first();
  await row.waitFor({ timeout: PATIENCE });
  seen.blocked = await row.textContent();
  seen.rows = await page.locator("#events li:visible").count();
  await page.getByLabel("blocks", { exact: true }).check();
  seen.rows_of_blocks = await page.locator("#events li:visible").count();

  await page.locator("#q").fill("nothing like it");
  await page.locator("#no-scopes").waitFor({ timeout: PATIENCE });
  seen.not_found = await page.locator("#no-scopes").textContent();

  console.log(JSON.stringify(seen));
  await browser.close();
}

main();
