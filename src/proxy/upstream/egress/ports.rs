//! Ports of other protocols. A plain HTTP request can be written so that a server of another protocol executes parts of
//! it, so browsers block these ports.

/// Mail between servers. Through a proxy it would only be spam.
pub(super) const SMTP: u16 = 25;

/// The bad ports of the Fetch standard (section 2.9), in order.
const BARRED: [u16; 82] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
    103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
    512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
    995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668,
    6669, 6679, 6697, 10080,
];

/// Whether browsers refuse HTTP to a port.
pub(super) fn is_barred(port: u16) -> bool {
    BARRED.binary_search(&port).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_are_sorted_and_exclude_web_ports() {
        assert!(BARRED.is_sorted());
        assert!(is_barred(22) && is_barred(6667) && is_barred(10080));
        assert!(![80, 443, 8080, 8443, 3000, 9200].into_iter().any(is_barred));
    }
}
