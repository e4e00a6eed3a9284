// Crawls a site with Crawlee's CheerioCrawler: the index page, then every link on it. ADVISED=1 uses the preset of
// docs/recipes. The proxy comes from HTTP_PROXY.
//
// Arguments and output: see README.md in this folder. SLOTS is the number of concurrent requests, MORE another start
// page, ADMIN the admin port.
"use strict";

const { CheerioCrawler, Configuration, ProxyConfiguration, log, LogLevel } = require("@crawlee/cheerio");
const { tidegate } = require("../../docs/recipes/crawlee.cjs");

log.setLevel(LogLevel.OFF);

const proxy = process.env.HTTP_PROXY;
const slots = Number(process.env.SLOTS || "10");
const answers = [];
const errors = [];

function keep(response, verdict) {
  const { headers, statusCode } = response;
  const refused = headers["tidegate-refused"] ?? null;
  answers.push({ statusCode, refused, verdict: verdict ?? headers["tidegate-verdict"] ?? null });
}

const options = {
  maxConcurrency: slots,
  async requestHandler({ response, verdict, $, enqueueLinks }) {
    keep(response, verdict);
    if ($) await enqueueLinks({ globs: ["http*://*/item/*"], strategy: "same-hostname" });
  },
  failedRequestHandler({ response }, error) {
    if (response) keep(response);
    else errors.push(error.message);
  },
};
if (process.env.TIMEOUT) {
  options.navigationTimeoutSecs = Number(process.env.TIMEOUT);
  options.maxRequestRetries = 0;
}

const advised = process.env.ADVISED === "1";
const Crawler = advised ? tidegate(CheerioCrawler, { proxy, admin: process.env.ADMIN ?? null }) : CheerioCrawler;
if (!advised) options.proxyConfiguration = new ProxyConfiguration({ proxyUrls: [proxy] });
const crawler = new Crawler(options, new Configuration({ persistStorage: false }));

const start = [process.argv[2], process.env.MORE].filter(Boolean);

crawler.run(start).then(() => {
  console.log(JSON.stringify({
    statuses: answers.map((answer) => answer.statusCode),
    verdicts: answers.map((answer) => answer.verdict),
    refused: answers.map((answer) => answer.refused),
    error: errors[0] || null,
  }));
});
