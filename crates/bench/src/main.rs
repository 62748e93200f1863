//! The program `stele-bench`.

fn main() {}
