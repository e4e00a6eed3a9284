// Opens the status page in Chromium, and prints its load time and content as one JSON object.
//
// Arguments: the page's URL, the expected number of rows, the tone of its health, the name of a screenshot.
// `integration-tests/tests/status_page.rs` starts the proxy and checks the result; SCREENSHOTS names a folder for the pictures.
"use strict";

const { launch } = require("./chromium.cjs");

const [url, rows, tone, name] = process.argv.slice(2);
const PATIENCE = 20_000;

async function main() {
  const browser = await launch();
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  // The first page of a browser includes its start.
  await page.goto("about:blank");
  await page.goto(url, { waitUntil: "commit" });
  await page.waitForFunction((n) => document.querySelectorAll("#scopes tr").length === n, Number(rows),
    { timeout: PATIENCE, polling: "raf" });
  const loaded_ms = await page.evaluate(() => Math.round(performance.now()));
  await page.locator(`#health[data-tone="${tone}"]`).waitFor({ timeout: PATIENCE });
  const seen = {
    loaded_ms, title: await page.title(), health: await page.locator("#health").textContent(),
    notices: await page.locator("#notices").textContent(), range: await page.locator("#range").textContent(),
    first: await page.locator("#scopes tr").first().textContent(),
  };
  if (await page.locator("#next").isEnabled()) {
    await page.locator("#next").click();
    await page.waitForFunction(() => document.querySelector("#range").textContent.startsWith("51 "));
    seen.second = await page.locator("#range").textContent();
    await page.locator("#back").click();
    await page.waitForFunction(() => document.querySelector("#range").textContent.startsWith("1 "));
    await page.locator("[data-sort=name]").click();
    await page.locator("th[aria-sort=ascending]").waitFor();
    await page.locator("[data-sort=name]").click();
    await page.waitForFunction((text) => document.querySelector("#scopes tr").textContent.startsWith(text),
      seen.first.slice(0, 12));
  }
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png` });
  console.log(JSON.stringify(seen));
  await browser.close();
}

main();
