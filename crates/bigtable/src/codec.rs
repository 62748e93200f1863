//! The codec of the generated stubs: prost's, behind a count of what it would decode.
//!
//! A codec is given nothing but bytes, so the call whose request it decodes is in a task local, which
//! [`crate::accounting::Calls`] sets.

use crate::accounting;
use crate::size_estimate::{Estimated, SizeEstimate};
use bytes::Buf as _;
use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

/// Encodes `T`, decodes `U`.
#[derive(Debug)]
pub(crate) struct CountingCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CountingCodec<T, U> {
    fn default() -> Self {
        CountingCodec(PhantomData)
    }
}

impl<T, U> Codec for CountingCodec<T, U>
where
    T: Message + Send + 'static,
    U: Estimated + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CountingDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, ()>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CountingDecoder(PhantomData)
    }
}

/// Decodes `U` after it has been counted.
#[derive(Debug)]
pub(crate) struct CountingDecoder<U>(PhantomData<U>);

impl<U: Estimated> Decoder for CountingDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // In one piece already, so this copies nothing.
        let bytes = bytes.copy_to_bytes(bytes.remaining());
        accounting::charge_current(SizeEstimate::of::<U>(&bytes)?.cost())?;
        U::decode(bytes)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
