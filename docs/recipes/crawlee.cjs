// Tidegate for Crawlee 3 (CheerioCrawler, JSDOMCrawler, HttpCrawler). Copy this file next to your crawler:
//
//   import { CheerioCrawler } from "crawlee";
//   import { tidegate } from "./crawlee.cjs";
//
//   const crawler = new (tidegate(CheerioCrawler))({
//     async requestHandler({ request, verdict, $ }) { ... },
//   });
//   await crawler.run(["https://shop.example/"]);
//
// - Every request goes through the proxy. Time-outs fit `max_wait`. Crawlee's own sessions and delays are off.
// - A refusal of the proxy that passes (`Tidegate-Refused: cooldown`, say) is not a failure: the request is repeated
//   after its `Retry-After`. Until then it takes none of the crawler's slots, and the crawler visits other sites.
//   Any other refusal, such as `denied`, reaches the handler.
// - `verdict` is what Tidegate thinks of the response. Responses over HTTPS are sent to the admin port to be judged.
"use strict";

const { NonRetryableError, ProxyConfiguration, RetryRequestError } = require("@crawlee/core");

// Refusals that pass by themselves. The Python packages have the same list.
const PASSING = new Set(["limit", "cooldown", "hours", "queue", "store"]);
const MAX_PAUSE = 3600; // seconds; the longest wait after a refusal
const DEFAULT_PAUSE = 10; // for a refusal that names no time, and for a refused tunnel
const SITE_TIME = 60; // what a site may take on top of the proxy's `max_wait`

/**
 * Returns a subclass of an HTTP crawler of Crawlee that crawls through Tidegate.
 *
 * `admin: null` does without the admin port; then responses over HTTPS have no verdict.
 */
function tidegate(Crawler, {
  proxy = "http://127.0.0.1:3128",
  admin = "http://127.0.0.1:9128",
  token = "",
  maxWait = 120,
  userAgent = "Crawlee",
} = {}) {
  return class extends Crawler {
    #returns = new Map(); // when a refused request may return, by its key
    #waiting = new Set();

    constructor(options = {}, ...rest) {
      super({
        navigationTimeoutSecs: maxWait + SITE_TIME,
        useSessionPool: false,
        ...options,
        proxyConfiguration: new ProxyConfiguration({ proxyUrls: [proxy] }),
        // A response of any status reaches the handler, with its verdict.
        ignoreHttpErrorStatusCodes: [...Array(100).keys()].map((n) => 500 + n),
        additionalMimeTypes: ["application/problem+json", ...(options.additionalMimeTypes ?? [])],
        preNavigationHooks: [plainly(userAgent), ...(options.preNavigationHooks ?? [])],
        postNavigationHooks: [(context) => this.#look(context), ...(options.postNavigationHooks ?? [])],
      }, ...rest);
      const handler = this.requestHandler;
      this.requestHandler = async (context) => {
        context.verdict = await verdictOf(context, admin, token);
        return handler(context);
      };
    }

    /** Notes when a refused request may return, and puts it back into the queue. */
    #look({ request, response }) {
      if (!PASSING.has(response.headers["tidegate-refused"])) return;
      response.resume();
      this.#putBack(request, Number(response.headers["retry-after"]) || DEFAULT_PAUSE);
    }

    #putBack(request, seconds) {
      this.#returns.set(request.uniqueKey, Date.now() + Math.min(seconds, MAX_PAUSE) * 1000);
      throw new RetryRequestError(`refused by Tidegate, again in ${seconds} s`);
    }

    /** A refused tunnel comes as an error of the connection, without the fields that say until when. */
    async _requestFunction(options) {
      try {
        return await super._requestFunction(options);
      } catch (error) {
        if (/proxy responded with (429|503)/i.test(error.message)) this.#putBack(options.request, DEFAULT_PAUSE);
        // The tunnel is denied: it would be denied again.
        if (/proxy responded with 4/i.test(error.message)) throw new NonRetryableError(error.message);
        throw error;
      }
    }

    /** Crawlee asks this of each request that it takes from the queue, before the request takes a slot. */
    delayRequest(request, source) {
      const key = request.uniqueKey;
      const wait = (this.#returns.get(key) ?? 0) - Date.now();
      if (wait <= 0) {
        this.#returns.delete(key);
        return super.delayRequest(request, source);
      }
      if (!this.#waiting.has(key)) {
        this.#waiting.add(key);
        setTimeout(() => {
          this.#waiting.delete(key);
          source.reclaimRequest(request);
        }, wait);
      }
      return true;
    }
  };
}

/** Crawlee invents the header of another browser for each request; a crawler that keeps to limits says who it is. */
const plainly = (userAgent) => (_context, got) => {
  got.useHeaderGenerator = false;
  got.headers = { ...got.headers, "user-agent": userAgent };
};

/** The verdict in the response, or the one of the admin port for a response that came through a tunnel. */
async function verdictOf({ request, response, body }, admin, token) {
  const told = response.headers["tidegate-verdict"];
  // A refusal is not the site's answer.
  if (told || response.headers["tidegate-refused"] || !admin || !request.url.startsWith("https:")) return told;
  // HTTP/2 has fields of its own, such as `:status`.
  const headers = Object.entries(response.headers).filter(([name]) => !name.startsWith(":"));
  const answer = await fetch(new URL("/api/v1/judge", admin), {
    method: "POST",
    headers: { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) },
    body: JSON.stringify({
      url: request.url,
      method: request.method,
      status: response.statusCode,
      headers: Object.fromEntries(headers),
      body: body.toString().slice(0, 128 * 1024),
      report: true,
    }),
  }).catch(() => undefined); // the crawl goes on without the admin port
  return answer?.ok ? (await answer.json()).verdict : undefined;
}

module.exports = { tidegate };
