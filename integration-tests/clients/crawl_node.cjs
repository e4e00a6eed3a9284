// Crawls a site with Node's fetch through undici: the index page, then every link on it, all at once.
// The proxy comes from HTTP_PROXY.
//
// Arguments and output: see README.md in this folder.
"use strict";

const { EnvHttpProxyAgent, RetryAgent, setGlobalDispatcher, fetch } = require("undici");

const patience = Number(process.env.TIMEOUT || "60") * 1000;
// Without `proxyTunnel: false` undici opens a tunnel for http:// as well.
let agent = new EnvHttpProxyAgent({ proxyTunnel: false });
if (process.env.ADVISED === "1") agent = new RetryAgent(agent, { maxRetries: 3 });
setGlobalDispatcher(agent);

const answers = [];
const errors = [];

async function get(url) {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(patience) });
    const text = await response.text();
    answers.push(response);
    return text;
  } catch (failure) {
    errors.push(failure.name);
    return "";
  }
}

async function crawl(index) {
  const links = [...(await get(index)).matchAll(/href="(\/item\/\d+)"/g)];
  await Promise.all(links.map((link) => get(new URL(link[1], index))));
  console.log(JSON.stringify({
    statuses: answers.map((answer) => answer.status),
    verdicts: answers.map((answer) => answer.headers.get("tidegate-verdict")),
    refused: answers.map((answer) => answer.headers.get("tidegate-refused")),
    error: errors[0] || null,
  }));
  await agent.close();
}

crawl(process.argv[2]);
