//! `store`: the store of the scopes.

use super::{FileContext, hosts, paths};
use crate::{
    config::{
        section::Reader,
        units::{self, Read, Wrong},
    },
    rules::{
        secret::Secret,
        settings::{RedisSettings, StoreSettings},
    },
};

pub(super) fn settings(reader: &Reader<'_>, context: &FileContext<'_>) -> StoreSettings {
    let Some(cursor) = reader.cursor("store") else { return StoreSettings::Memory };
    if cursor.is_word("memory") {
        return StoreSettings::Memory;
    }
    if cursor.is_map() {
        let section = cursor.open();
        let url = section.optional("url", |text| match text {
            "memory" => Err(Wrong::new(
                "`memory` has no URL and no other keys",
                "write `store: memory` instead of the whole mapping",
            )),
            url => hosts::store_url(url),
        });
        let url = url.unwrap_or_else(|| Secret::new(""));
        if let Some(cursor) = section.given_cursor("url").filter(|_| has_password(&url)) {
            paths::warn_if_exposed(&cursor, context);
        }
        return StoreSettings::Redis(redis(url, &section, context));
    }
    match cursor.scalar(hosts::store_url) {
        Some(url) => {
            if has_password(&url) {
                paths::warn_if_exposed(&cursor, context);
            }
            StoreSettings::Redis(redis(url, &cursor.open_empty(), context))
        }
        None => StoreSettings::Memory,
    }
}

fn has_password(url: &Secret) -> bool {
    let login = url.expose().split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    login.is_some_and(|(login, _)| login.split_once(':').is_some_and(|(_, word)| !word.is_empty()))
}

fn redis(url: Secret, section: &Reader<'_>, context: &FileContext<'_>) -> RedisSettings {
    RedisSettings {
        prefix: section.read("prefix", prefix),
        timeout: section.get("timeout"),
        on_failure: section.word("on_failure"),
        local_share: section.unless("local_share", "auto", units::share),
        ca: ca(&url, section, context),
        url,
    }
}

/// Roots for the store's certificate; they need a URL with TLS.
fn ca(url: &Secret, section: &Reader<'_>, context: &FileContext<'_>) -> Vec<std::path::PathBuf> {
    let ca = paths::roots(section, "ca", context);
    let plain = url.expose().starts_with("redis:") || url.expose().starts_with("redis-");
    if plain
        && !ca.is_empty()
        && let Some(cursor) = section.given_cursor("ca")
    {
        let message = "the store's URL does not use TLS, so no certificate is checked";
        cursor.warn(Wrong::new(message, "write `rediss://` (or `rediss-cluster://`, ...)"));
    }
    ca
}

fn prefix(text: &str) -> Read<String> {
    hosts::name(text).map(|name| name.to_string())
}
