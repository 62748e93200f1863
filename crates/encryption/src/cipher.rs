//! The ciphers: AES-256 in counter mode for contents, HMAC-SHA-256 for headers.

use crate::service::DataKey;
use aes::Aes256Enc;
use ctr::cipher::{InnerIvInit, KeyInit, StreamCipher, StreamCipherSeek};
use ctr::{Ctr128BE, CtrCore};
use ring::hmac;
use ring::rand::SecureRandom;

/// Bytes of the first counter block.
pub(crate) const NONCE_BYTES: usize = 16;

/// Bytes of the authentication code in a header.
pub(crate) const MAC_BYTES: usize = 16;

/// From which text the key of headers is derived, so that no key has two uses.
const HEADER_KEY_OF: &[u8] = b"stele file header";

/// A source of bytes that nobody can predict.
pub trait RandomBytes: Send + Sync + 'static {
    /// Fills all bytes. An error is a sentence.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), String>;
}

/// The generator of the operating system.
#[derive(Debug, Default)]
pub struct SystemRandom;

impl RandomBytes for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), String> {
        let filled = ring::rand::SystemRandom::new().fill(bytes);
        filled.map_err(|_| "the operating system gives no random bytes".to_owned())
    }
}

/// A data key, prepared for use.
pub(crate) struct ContentKey {
    aes: Aes256Enc,
    header: hmac::Key,
}

impl ContentKey {
    pub(crate) fn new(key: &DataKey) -> ContentKey {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.bytes()), HEADER_KEY_OF);
        ContentKey {
            aes: Aes256Enc::new(key.bytes().into()),
            header: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
        }
    }

    /// Encrypts or decrypts the bytes of a file's content from `offset` on, in place.
    pub(crate) fn apply(&self, nonce: &[u8; NONCE_BYTES], offset: u64, bytes: &mut [u8]) {
        let mut stream = Ctr128BE::from_core(CtrCore::inner_iv_init(&self.aes, nonce.into()));
        stream.seek(offset);
        stream.apply_keystream(bytes);
    }

    /// The authentication code of a header's fields.
    pub(crate) fn mac(&self, fields: &[u8]) -> [u8; MAC_BYTES] {
        let tag = hmac::sign(&self.header, fields);
        let mut mac = [0; MAC_BYTES];
        for (to, from) in mac.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::KEY_BYTES;

    /// NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt), whole and from every offset.
    #[test]
    fn contents_are_encrypted_by_the_standard() {
        let hex = |text: &str| -> Vec<u8> {
            let pairs = text.as_bytes().chunks(2);
            pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let key = hex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let nonce: [u8; 16] = hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff").try_into().unwrap();
        let plain = hex(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52ef\
             f69f2445df4f9b17ad2b417be66c3710",
        );
        let expected = hex(
            "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c52b0930daa23de94ce87017ba2d84988d\
             dfc9c58db67aada613c2dd08457941a6",
        );
        let key = ContentKey::new(&DataKey::new(key.try_into().unwrap()));
        for start in 0..plain.len() {
            let mut part = plain[start..].to_vec();
            key.apply(&nonce, start as u64, &mut part);
            assert_eq!(part, expected[start..], "from {start}");
        }
    }

    /// The counter goes over the end of its 128 bits.
    #[test]
    fn a_counter_begins_anew_after_its_end() {
        let key = ContentKey::new(&DataKey::new([7; KEY_BYTES]));
        let (mut last, mut first) = ([0; 32], [0; 16]);
        key.apply(&[0xff; NONCE_BYTES], 0, &mut last);
        key.apply(&[0; NONCE_BYTES], 0, &mut first);
        assert_eq!(last[16..], first);
        assert_ne!(last[..16], first);
    }
}
