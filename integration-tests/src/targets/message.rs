//! Parses messages of the proxy, which always have the same plain form.

/// Length of the first message's head; `None` until it is complete.
pub(super) fn head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Length of the body after `head`; `None` until it is complete.
pub(super) fn body(head: &[u8], rest: &[u8]) -> Option<usize> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let field = |name: &str| {
        head.lines().find_map(|line| line.split_once(':').filter(|(field, _)| *field == name))
    };
    if field("transfer-encoding").is_some() {
        return chunked(rest);
    }
    let Some((_, length)) = field("content-length") else { return Some(0) };
    let length = length.trim().parse().ok()?;
    (rest.len() >= length).then_some(length)
}

fn chunked(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        at = at.checked_add(line + 2)?.checked_add(size)?.checked_add(2)?;
        if at > bytes.len() {
            return None;
        }
        if size == 0 {
            return Some(at);
        }
    }
}
