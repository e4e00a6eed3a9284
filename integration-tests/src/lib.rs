//! The harness of the black-box tests: real processes, real Redis, real sockets, loopback only.
//!
//! - [`site`]: a web site with scripted responses or a wall, which records each request and its time.
//! - [`redis`]: a private `redis-server` that can be killed, stopped and brought back.
//! - [`member`]: one running `tidegate` with a rule file of its own, its metrics and its log.
//! - [`news`]: the messages of the fleet, and their times.
//! - [`client`]: a keep-alive proxy client, and one that sends exact bytes.
//! - [`counting`]: a site and a client between which a proxy's requests can be counted.
//! - [`differential`]: mutated requests, and how real servers read the messages that the proxy forwards.
//! - [`load`]: many keep-alive clients at once.
//! - [`soak`]: minutes of load and faults, and the checks afterwards.
//! - [`storm`]: a fleet under load whose site begins to block.
//! - [`bound`]: whether what a site saw stays within `burst + rate * t`.
//! - [`overloaded`]: a site with a limited capacity, and the yield of a fleet there.
//! - [`relay`]: a relay between a member and its Redis that fails like networks and servers do.
//! - [`secure`]: certificates of sites that speak TLS, good and bad ones.
//! - [`sim`]: a big simulated fleet: the real gate and the real scripts, in virtual time.
//! - [`targets`]: parsers of outside bytes, for the fuzzers.
//! - [`tools`]: real clients, pointed at a proxy by their usual variables.
//! - [`upstream`]: proxies behind the proxy.
//! - [`wait`]: waiting for a condition; no test relies on a sleep.
//! - [`walls`]: how sites block crawlers that are too fast, as pure functions of time.
//!
//! Everything that is started ends with its handle, also when the test fails.

pub mod bound;
pub mod callgrind;
pub mod client;
pub mod cluster;
pub mod counting;
pub mod crowd;
pub mod differential;
pub mod families;
mod freeze;
pub mod load;
pub mod member;
pub mod metric_names;
pub mod news;
pub mod overloaded;
pub mod ports;
pub mod redis;
pub mod relay;
pub mod secure;
pub mod sim;
pub mod site;
pub mod soak;
pub mod storm;
pub mod targets;
pub mod tools;
pub mod upstream;
pub mod wait;
pub mod walls;
