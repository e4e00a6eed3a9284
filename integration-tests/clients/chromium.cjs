// Starts the machine's Chromium under Playwright with a fresh profile and without outside connections.
"use strict";

const { chromium } = require("playwright-core");

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

exports.launch = (proxy) => chromium.launch({ executablePath: "/usr/bin/chromium", headless: true, args: FLAGS, proxy });
