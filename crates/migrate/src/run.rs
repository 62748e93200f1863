//! The command: makes tables, copies, compares.

use crate::args::MigrateArgs;
use crate::copy::{Copy, Transfer};
use crate::ends::Ends;
use crate::journal::{Identity, Journal, Range};
use crate::pace::Pace;
use crate::tables::{self, Made, Table};
use crate::verify::{Report, Verification};
use anyhow::Result;
use bytes::Bytes;
use parking_lot::Mutex;
use std::process::ExitCode;
use std::sync::Arc;
use stele_cli::checkpoint::options_hash;
use stele_cli::progress::count;
use stele_hbaseclient::scan::View;

#[cfg(test)]
mod tests;

/// Runs the command to its end. An error is one line for the user; a difference is an exit status.
///
/// # Errors
/// A failure of either side, or of the progress file.
pub async fn run(args: MigrateArgs) -> Result<ExitCode> {
    let ends = Arc::new(Ends::connect(&args).await?);
    let tables = tables::list(&ends.source, &args.selection).await?;
    let transfer = Transfer {
        ends,
        pace: Arc::new(Pace::new(args.max_bytes_per_second)),
        ignore_tags: args.ignore_tags,
    };
    if args.verify_only {
        let views = tables::views(&transfer.ends.target, &tables).await?;
        return verify(transfer, &views, &args).await;
    }
    let journal = prepare(&transfer.ends, &tables, &args).await?;
    // Now the target has all of them.
    let views = tables::views(&transfer.ends.target, &tables).await?;
    for (name, _) in views.iter().filter(|(_, view)| *view == View::Visible) {
        println!("table {name}: its deletes act by sequence, so only visible cells are copied, and writers must pause");
    }
    if args.schema_only {
        return Ok(ExitCode::SUCCESS);
    }
    let journal = Arc::new(Mutex::new(journal));
    let copy = Arc::new(Copy {
        transfer: transfer.clone(),
        journal: Arc::clone(&journal),
    });
    copy.run(&views, usize::from(args.parallel)).await?;
    if args.verify {
        // The progress stays, so that a comparison that fails does not make the copy start over.
        let code = verify(transfer, &views, &args).await?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    journal.lock().finish(views.iter().map(|(name, _)| name.as_str()))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes missing tables, and plans the ranges of all that are to be copied.
async fn prepare(ends: &Ends, tables: &[Table], args: &MigrateArgs) -> Result<Journal> {
    let work = Identity {
        source: ends.source_id.clone(),
        target: ends.target_id.clone(),
        options: options_hash(&[args.ignore_tags.to_string()]),
    };
    let mut journal = Journal::open(args.state.clone(), work, args.restart)?;
    begin_again(&mut journal, tables, args)?;
    for table in tables {
        let regions = ends.source.regions(&table.name).await?;
        let ids = || regions.iter().filter_map(|region| region.id());
        if journal.is_outdated(&table.name, ids().min()) {
            println!(
                "table {}: the source made it again since its copy began, or all of its regions: it is copied from its start",
                table.name
            );
            journal.forget(&table.name);
            journal.save()?;
        }
        let starts = regions.iter().map(|region| region.start.clone());
        let splits: Vec<Bytes> = starts.filter(|start| !start.is_empty()).collect();
        // Progress of an earlier table of this name means nothing for a new one, which may be there although its call fails.
        let begin = || match journal.forget(&table.name) {
            true => journal.save(),
            false => Ok(()),
        };
        let options = (splits, &args.drop_attribute[..]);
        let made = tables::make(&ends.source, &ends.target, table, options, begin).await?;
        if made == Made::New {
            println!(
                "made table {} with {}",
                table.name,
                count(regions.len() as u64, "region")
            );
        }
        if !args.schema_only {
            let range = |(start, end): (Bytes, Bytes)| Range {
                start,
                end,
                ..Range::default()
            };
            let bounds = regions.iter().map(|region| (region.start.clone(), region.end.clone()));
            journal.plan(&table.name, ids().max(), || bounds.map(range).collect());
        }
    }
    Ok(journal)
}

/// An earlier run may have copied all of these tables, and its comparison found differences or was stopped. A run that
/// compares goes on from there. Any other one copies again, or it would do nothing.
fn begin_again(journal: &mut Journal, tables: &[Table], args: &MigrateArgs) -> Result<()> {
    let names = || tables.iter().map(|table| table.name.as_str());
    if args.schema_only || args.verify || !journal.is_done(names()) {
        return Ok(());
    }
    println!("an earlier run copied all rows; they are copied again");
    for name in names() {
        journal.forget(name);
    }
    // A run that ends now must not leave a file that says that the tables are copied.
    journal.save()
}

async fn verify(transfer: Transfer, tables: &[(String, View)], args: &MigrateArgs) -> Result<ExitCode> {
    let verification = Arc::new(Verification {
        transfer,
        repair: args.repair,
        delete_extra: args.delete_extra,
        attempts: args.attempts,
        report: Mutex::new(Report::default()),
    });
    let equal = verification.run(tables, usize::from(args.parallel)).await?;
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
