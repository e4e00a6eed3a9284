//! File descriptors of the process: raises the limit as far as the system allows, and warns if it
//! is too low.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One for the client's connection, and one for the site's.
const PER_CONNECTION: u64 = 2;

/// Raises the soft limit to the hard one and returns it; `None` if there is no limit. The soft
/// limit is low by default only because `select` supports just 1,024 descriptors.
pub(super) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(_) => current,
    }
}

/// A warning if the descriptors are too few for `limits.connections`.
pub(super) fn too_few(available: Option<u64>, connections: usize) -> Option<String> {
    let needed = u64::try_from(connections).unwrap_or(u64::MAX).saturating_mul(PER_CONNECTION);
    let available = available.filter(|available| *available < needed)?;
    Some(format!(
        "`limits.connections: {connections}` may take {needed} descriptors, and the system allows {available}: \
         raise its limit (`ulimit -Hn`, `LimitNOFILE`), or lower ours"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_descriptors_for_each_connection_are_enough() {
        assert_eq!(too_few(None, 10_000), None);
        assert_eq!(too_few(Some(20_000), 10_000), None);
        let said = too_few(Some(1_024), 10_000).expect("these are too few");
        assert!(said.contains("10000") && said.contains("1024"), "{said}");
    }
}
