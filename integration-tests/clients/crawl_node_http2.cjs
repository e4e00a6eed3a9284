// Crawls a site with Node's own HTTP/2 through a tunnel: the index page, then every link on it, all at once on one
// connection. The proxy comes from HTTPS_PROXY.
//
// Arguments and output: see README.md in this folder.
"use strict";

const http = require("node:http");
const http2 = require("node:http2");
const tls = require("node:tls");

const index = new URL(process.argv[2]);
const proxy = new URL(process.env.HTTPS_PROXY);
const patience = Number(process.env.TIMEOUT || "60") * 1000;
const answers = [];
let error = null;

function tunnel() {
  return new Promise((resolve, reject) => {
    const connect = http.request({
      host: proxy.hostname, port: proxy.port, method: "CONNECT", path: index.host, headers: { host: index.host },
    });
    connect.on("connect", (answer, socket) => resolve(socket)).on("error", reject).end();
  });
}

function get(session, path) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ":path": path });
    let text = "";
    stream.setEncoding("utf8").setTimeout(patience, () => stream.close());
    stream.on("response", (head) => answers.push(head));
    stream.on("data", (part) => { text += part; });
    stream.on("end", () => resolve(text)).on("error", reject);
  });
}

async function crawl() {
  const socket = tls.connect({ socket: await tunnel(), servername: index.hostname, ALPNProtocols: ["h2"] });
  const session = http2.connect(index.origin, { createConnection: () => socket });
  try {
    const links = [...(await get(session, index.pathname)).matchAll(/href="(\/item\/\d+)"/g)];
    await Promise.all(links.map((link) => get(session, link[1])));
  } catch (failure) {
    error = failure.code;
  }
  const field = (name) => answers.map((head) => head[name] || null);
  console.log(JSON.stringify({
    statuses: answers.map((head) => head[":status"]),
    verdicts: field("tidegate-verdict"),
    refused: field("tidegate-refused"),
    error,
  }));
  session.close();
}

crawl();
