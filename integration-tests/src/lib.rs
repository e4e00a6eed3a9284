//! The harness of the black-box tests: real processes, real Redis, real sockets, loopback only.
//!
//! - [`site`]: a web site that answers as told, or behind a wall, and records what reached it, and when.
//! - [`redis`]: a private `redis-server` that can be killed, stopped and brought back.
//! - [`member`]: one running `tidegate` with a rule file of its own, its metrics and its log.
//! - [`news`]: what the fleet tells itself, and when.
//! - [`client`]: a keep-alive proxy client, and one that sends exact bytes.
//! - [`counting`]: a site and a client between which a proxy's requests can be counted.
//! - [`differential`]: mutated requests, and how real servers read what the proxy forwards of them.
//! - [`load`]: many keep-alive clients at once.
//! - [`soak`]: minutes of load and faults, and what is left afterwards.
//! - [`storm`]: a fleet under load whose site begins to block.
//! - [`bound`]: whether what a site saw stays within `burst + rate * t`.
//! - [`overloaded`]: a site that can only give so many pages per second, and what a fleet brings home from it.
//! - [`relay`]: what stands between a member and its Redis, and can go wrong as networks and servers do.
//! - [`secure`]: certificates of sites that speak TLS, good and bad ones.
//! - [`sim`]: a big fleet on paper: the real gate and the real scripts, in virtual time.
//! - [`targets`]: what reads bytes from outside, for the fuzzers.
//! - [`tools`]: real clients, pointed at a proxy by their usual variables.
//! - [`upstream`]: proxies behind the proxy.
//! - [`wait`]: waiting for a condition; no test sleeps and hopes.
//! - [`walls`]: how sites block who crawls too fast, as pure functions of time.
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
