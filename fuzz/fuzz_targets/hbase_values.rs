//! Values of HBase clients: compressed blocks of cells, trace information, and numbers of aggregations.
//!
//! Blocks are unpacked within their bound, and survive a round trip. So do numbers. Sums and comparisons do not depend on the order.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::cell::OnceCell;
use stele_env::tokio_env::TokioRuntime;
use stele_hbase::fuzzing;
use tokio::runtime::Runtime;

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| {
    let whole = Bytes::copy_from_slice(bytes);
    fuzzing::trace(&whole);
    // The first byte is the length of the first number.
    let (len, cells) = bytes.split_first().unwrap_or((&0, &[]));
    let (first, second) = cells.split_at(usize::from(*len).min(cells.len()));
    fuzzing::numbers(first, second);
    RUNTIME.with(|cell| {
        let runtime = cell.get_or_init(|| {
            let builder = tokio::runtime::Builder::new_current_thread().enable_time().build();
            builder.expect("a runtime without threads")
        });
        runtime.block_on(async { fuzzing::block(&whole, &TokioRuntime::current()).await });
    });
});
