//! The HBase wire protocol, version 2.6: messages, frames, cell blocks. Pure: bytes in, bytes out; no sockets, no time.
