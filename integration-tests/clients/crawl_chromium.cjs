// Crawls a site with Chromium, driven by Playwright: the index page, then every link on it, one tab.
// The proxy comes from HTTP_PROXY and is given as Playwright's `proxy` option.
//
// Arguments and output: see README.md in this folder.
"use strict";

const { launch } = require("./chromium.cjs");

const patience = Number(process.env.TIMEOUT || "60") * 1000;

async function crawl(index) {
  // By default Chromium uses no proxy for loopback.
  const browser = await launch({ server: process.env.HTTP_PROXY, bypass: "<-loopback>" });
  const answers = [];
  let error = null;
  try {
    const page = await browser.newPage();
    page.setDefaultNavigationTimeout(patience);
    answers.push(await page.goto(index));
    const links = await page.locator("a").evaluateAll((all) => all.map((link) => link.href));
    for (const link of links) answers.push(await page.goto(link));
  } catch (failure) {
    error = failure.name;
  }
  const field = (name) => answers.map((answer) => answer.headers()[name] || null);
  console.log(JSON.stringify({
    statuses: answers.map((answer) => answer.status()),
    verdicts: field("tidegate-verdict"),
    refused: field("tidegate-refused"),
    error,
  }));
  await browser.close();
}

crawl(process.argv[2]);
