//! Writes a bundle of fabricated figures into a folder, to show the report's layout.
//!
//! Nothing in it was measured.
//!
//! `cargo run -p stele-bench --example sample_report FOLDER`

use stele_bench as bench;

#[path = "../src/bundle/fabricated.rs"]
mod fabricated;

fn main() -> anyhow::Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        anyhow::bail!("name a new folder")
    };
    let dir = std::path::PathBuf::from(dir);
    let bundle = fabricated::bundle(1.0);
    let page = bench::report::render(std::slice::from_ref(&bundle));
    bench::bundle::write(&bundle, &page, &dir.join("bundle"))?;
    let later = fabricated::bundle(0.8);
    #[allow(
        clippy::disallowed_methods,
        reason = "an example is the world outside the simulated database"
    )]
    std::fs::write(dir.join("compared.html"), bench::report::compare(&[bundle, later]))?;
    Ok(())
}
