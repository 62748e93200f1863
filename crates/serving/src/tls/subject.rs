//! The name that a certificate gives to its holder.
//!
//! It is the common name of the subject, or else the first URI (as of SPIFFE), or else the first DNS name. The certificate was
//! verified by the handshake. Only the common name is decoded here, because the library that verifies does not give it.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Bytes of the longest name; X.520 has 64 for a common name, and URIs are longer.
const NAME_BYTES_MAX: usize = 256;

/// DER tags.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The name of the holder of a verified certificate; `None` if it has no name of up to 256 printable bytes.
pub fn name_of_certificate(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    if let Some(name) = common_name(parsed.subject()) {
        return usable(name);
    }
    let first_uri = parsed.valid_uri_names().next();
    usable(first_uri.or_else(|| parsed.valid_dns_names().next())?)
}

fn usable(name: &str) -> Option<String> {
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    fits.then(|| name.to_owned())
}

/// The last common name of a subject, which is the content of a sequence of sets of pairs. The last one is the most
/// specific.
fn common_name(mut subject: &[u8]) -> Option<&str> {
    let mut found = None;
    while !subject.is_empty() {
        let mut set = take(&mut subject, SET)?;
        while !set.is_empty() {
            let mut pair = take(&mut set, SEQUENCE)?;
            if take(&mut pair, OBJECT_ID)? != COMMON_NAME {
                continue;
            }
            let tag = *pair.first()?;
            if matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING) {
                found = std::str::from_utf8(take(&mut pair, tag)?).ok();
            }
        }
    }
    found
}

/// The content of the next element, which must have this tag.
fn take<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&found, rest) = input.split_first()?;
    if found != tag {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Names are far below 64 KiB.
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => {
            let bytes = rest.first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*bytes)), rest.get(2..)?)
        }
        _ => return None,
    };
    let content = rest.get(..len)?;
    *input = rest.get(len..)?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match content.len() {
            len @ 0..=0x7f => bytes.push(len as u8),
            len => bytes.extend([0x82, (len >> 8) as u8, len as u8]),
        }
        bytes.extend_from_slice(content);
        bytes
    }

    fn attribute(object: &[u8], tag: u8, text: &str) -> Vec<u8> {
        let pair = [element(OBJECT_ID, object), element(tag, text.as_bytes())].concat();
        element(SET, &element(SEQUENCE, &pair))
    }

    #[test]
    fn the_last_common_name_counts() {
        let subject = [
            attribute(&[0x55, 0x04, 0x0a], UTF8_STRING, "Example"),
            attribute(COMMON_NAME, PRINTABLE_STRING, "first"),
            attribute(COMMON_NAME, UTF8_STRING, "älice"),
        ];
        assert_eq!(common_name(&subject.concat()), Some("älice"));
        let long = "n".repeat(300);
        assert_eq!(common_name(&attribute(COMMON_NAME, UTF8_STRING, &long)), Some(&*long));
        assert_eq!(usable(&long), None);
        assert_eq!(usable("a\nb"), None);
    }

    #[test]
    fn damaged_subjects_have_no_name() {
        let whole = attribute(COMMON_NAME, UTF8_STRING, "alice");
        for len in 0..whole.len() {
            assert_eq!(common_name(&whole[..len]), None, "{len} bytes");
        }
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut damaged = whole.clone();
                damaged[at] = value;
                // No panic; most have no name.
                let _ = common_name(&damaged);
            }
        }
        assert_eq!(common_name(&attribute(COMMON_NAME, 0x1e, "bmp")), None);
    }
}
