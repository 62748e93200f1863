//! Block cache: sharded, byte-weighted, scan-resistant.
