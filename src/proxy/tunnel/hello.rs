//! The host name in the first flight of a TLS client (SNI, RFC 6066 section 3).

use rustls::server::Acceptor;

use crate::{
    proxy::tunnel::peek::{is_record_type, is_record_version},
    target::Host,
};

/// Longest hello that is accepted; rustls has the same limit.
const MAX_HELLO: usize = 64 * 1024;

/// The kind of a client's first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// The rest of a hello is missing.
    Partial,
    /// A hello for this host.
    Named(Host),
    /// A hello without a name, or no TLS at all.
    Nameless,
    /// It begins like a hello but cannot be parsed.
    Unreadable,
}

/// Reads the first bytes of a client.
pub(super) fn read(bytes: &[u8]) -> Hello {
    match bytes {
        [] => return Hello::Partial,
        [first] if is_record_type(*first) => return Hello::Partial,
        [first, major, ..] if is_record_type(*first) && is_record_version(*major) => {}
        // A hello in the SSL 2 format has no field for a name.
        _ => return Hello::Nameless,
    }
    let (mut acceptor, mut rest) = (Acceptor::default(), bytes);
    loop {
        match acceptor.read_tls(&mut rest) {
            Ok(0) if bytes.len() < MAX_HELLO => return Hello::Partial,
            Ok(1..) => {}
            Ok(0) | Err(_) => return Hello::Unreadable,
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                return match accepted.client_hello().server_name().map(Host::parse) {
                    None => Hello::Nameless,
                    Some(Ok(host)) => Hello::Named(host),
                    Some(Err(_)) => Hello::Unreadable,
                };
            }
            Err(_) => return Hello::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// The first bytes that rustls sends to a site of this name.
    fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = name.to_owned().try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_name_is_read_once_the_whole_hello_is_there() {
        let whole = hello("Shop.example");
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length]), Hello::Partial, "{length} bytes");
        }
        assert_eq!(read(&whole), Hello::Named(Host::parse("shop.example").unwrap()));
        assert_eq!(
            read(&[&whole[..], b"more"].concat()),
            Hello::Named(Host::parse("shop.example").unwrap())
        );
        assert_eq!(read(&hello("192.0.2.1")), Hello::Nameless);
    }

    #[test]
    fn other_protocols_and_unreadable_hellos_are_distinguished() {
        assert_eq!(read(b"SSH-2.0-x\r\n"), Hello::Nameless);
        assert_eq!(read(b"\x16\x10\x01"), Hello::Nameless);
        assert_eq!(read(b"\x80\x2e\x01\x03\x01\x00\x15"), Hello::Nameless);
        assert_eq!(read(b"\x16\x03\x01\x00\x04\x05\x00\x00\x00"), Hello::Unreadable);
        assert_eq!(read(&[&b"\x16\x03\x01\xff\xff"[..], &[0; 70_000]].concat()), Hello::Unreadable);
    }

    #[test]
    fn no_version_and_no_warning_before_a_hello_hides_its_name() {
        let plain = hello("shop.example");
        for major in [2, 4, 15] {
            let mut odd = plain.clone();
            odd[1] = major;
            assert_eq!(read(&odd), Hello::Unreadable, "version {major}.1");
        }
        // A warning that some servers ignore (`user_canceled`).
        let warned = [&b"\x15\x03\x01\x00\x02\x01\x5a"[..], &plain].concat();
        assert_ne!(read(&warned), Hello::Nameless);
    }
}
