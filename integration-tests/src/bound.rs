//! Checks the bound of the gate on what a site saw: in every window of length t at most `burst +
//! rate * t`.

use std::time::Instant;

/// By how much the worst window of `arrivals` exceeds `burst + rate * t`; zero or less if the bound
/// holds.
///
/// Exact and O(n): the window from arrival i to arrival j holds `j - i + 1` requests, so the excess
/// is the largest `(j - rate * t_j) - (i - rate * t_i) + 1 - burst` over all i <= j. A site sees
/// arrivals instead of grants: a request that was in flight for `d` longer than another can raise
/// the excess by `rate * d`, so callers allow a stated epsilon.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "tests have far fewer than 2^52 arrivals")]
pub fn worst_window_excess(arrivals: &[Instant], rate: f64, burst: f64) -> f64 {
    let Some(first) = arrivals.iter().min() else { return -burst };
    let mut sorted = arrivals.to_vec();
    sorted.sort_unstable();
    let mut lowest = f64::INFINITY;
    let mut worst = f64::NEG_INFINITY;
    for (n, at) in sorted.iter().enumerate() {
        let height = n as f64 - rate * at.duration_since(*first).as_secs_f64();
        lowest = lowest.min(height);
        worst = worst.max(height - lowest + 1.0 - burst);
    }
    worst
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::worst_window_excess;

    fn at(start: Instant, millis: &[u64]) -> Vec<Instant> {
        millis.iter().map(|ms| start + Duration::from_millis(*ms)).collect()
    }

    #[test]
    fn a_burst_and_then_the_rate_is_within_the_bound() {
        let arrivals = at(Instant::now(), &[0, 0, 0, 100, 200, 300, 400]);
        assert!(worst_window_excess(&arrivals, 10.0, 3.0).abs() < 1e-9);
    }

    #[test]
    fn one_request_too_many_anywhere_shows_as_one() {
        let arrivals = at(Instant::now(), &[0, 5000, 5000, 5000, 5000, 6000, 7000]);
        assert!((worst_window_excess(&arrivals, 1.0, 3.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_order_of_the_record_does_not_matter() {
        let arrivals = at(Instant::now(), &[300, 0, 100, 0]);
        assert!((worst_window_excess(&arrivals, 1.0, 1.0) - 2.7).abs() < 1e-9);
    }

    #[test]
    fn it_agrees_with_looking_at_every_window() {
        let start = Instant::now();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let mut millis: Vec<u64> = (0..40).map(|_| random.u64(0..4000)).collect();
            millis.sort_unstable();
            let arrivals = at(start, &millis);
            let mut slow = f64::NEG_INFINITY;
            for i in 0..arrivals.len() {
                for j in i..arrivals.len() {
                    let t = arrivals[j].duration_since(arrivals[i]).as_secs_f64();
                    let n = f64::from(u32::try_from(j - i + 1).expect("at most 40"));
                    slow = slow.max(n - 5.0 - 7.0 * t);
                }
            }
            assert!((worst_window_excess(&arrivals, 7.0, 5.0) - slow).abs() < 1e-9);
        }
    }
}
