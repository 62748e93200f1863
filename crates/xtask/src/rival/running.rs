//! A rival that is there as long as a task needs it.
//!
//! Invariant: the parts of a rival that ran before run afterwards, and those that the task started are stopped, also after
//! an error.

use super::{Place, Request, Rival};
use anyhow::Result;

/// A rival whose parts are stopped when dropped, but those that ran before.
pub struct Running {
    rival: Rival,
    place: Place,
    url: String,
    /// The parts that the task started. Constant, but for [`Running::stop`].
    started: Vec<&'static str>,
}

impl Running {
    /// Starts a rival unless it runs already as asked for.
    pub fn start(rival: Rival, request: &Request) -> Result<Running> {
        Running::start_at(rival, rival.place(), request)
    }

    fn start_at(rival: Rival, place: Place, request: &Request) -> Result<Running> {
        let started = super::start(rival, &place, request)?;
        let mut running = Running {
            rival,
            place,
            url: String::new(),
            started,
        };
        running.url = super::url(rival, &running.place)?;
        Ok(running)
    }

    /// The URL for `stele-bench`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it serves HBase's protocol, if that is its own.
    pub fn hbase_address(&self) -> &str {
        let address = self.url.trim_start_matches("hbase://");
        address.split('?').next().unwrap_or_default()
    }

    /// Which one it is.
    pub fn rival(&self) -> Rival {
        self.rival
    }

    /// Whether the task started all of it.
    pub fn is_own(&self) -> bool {
        self.started.len() == self.rival.parts().len()
    }

    /// Stops the parts that the task started.
    pub fn stop(mut self) -> Result<()> {
        self.stop_started()
    }

    /// The same, for the first time.
    fn stop_started(&mut self) -> Result<()> {
        let started = std::mem::take(&mut self.started);
        if started.is_empty() {
            return Ok(());
        }
        super::stop_parts(self.rival, &self.place, |part| started.contains(&part))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop_started() {
            eprintln!("stopping {}: {error:#}", self.rival.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rival::{Identity, Party, canonical, emulator};
    use crate::server::{Process, Scratch};
    use crate::shell::Run;
    use std::collections::BTreeMap;
    use std::fs;

    const REQUEST: Request = Request {
        settings: Vec::new(),
        conf: None,
        fresh: false,
    };

    /// A place where a process passes for the emulator, as its start leaves it.
    fn place(scratch: &Scratch, process: &Process) -> Place {
        // A path from the root is the place itself.
        let place = Place::of(&scratch.join("emulator").to_string_lossy());
        place.prepare(true).unwrap();
        let identity = Identity::of(process.pid()).unwrap();
        fs::write(place.pid_file(emulator::PART.name), format!("{identity}\n")).unwrap();
        fs::write(place.request(), canonical(&REQUEST).unwrap()).unwrap();
        let party = Party {
            name: "emulator",
            version: "1".to_owned(),
            url: "bigtable://h:1/bench".to_owned(),
            members: Vec::new(),
            configuration: BTreeMap::new(),
            data_dirs: Vec::new(),
            settings: Vec::new(),
        };
        party.write(&place.party()).unwrap();
        place
    }

    fn sleeper() -> Process {
        Process::new(Run::new("sleep").args(["600"]).into_command().spawn().unwrap())
    }

    #[test]
    fn a_rival_that_ran_before_runs_on() {
        let scratch = Scratch::new("rival-before").unwrap();
        let mut process = sleeper();
        for stops in [true, false] {
            let running = Running::start_at(Rival::Emulator, place(&scratch, &process), &REQUEST).unwrap();
            assert!(!running.is_own() && running.url().starts_with("bigtable://h:1/bench"));
            if stops {
                running.stop().unwrap();
            }
        }
        assert_eq!(process.ended().unwrap(), None);
        scratch.passed();
    }

    #[test]
    fn a_rival_that_is_to_begin_empty_must_not_run_before() {
        let scratch = Scratch::new("rival-fresh").unwrap();
        let process = sleeper();
        let fresh = Request { fresh: true, ..REQUEST };
        let refused = Running::start_at(Rival::Emulator, place(&scratch, &process), &fresh);
        let why = refused.err().expect("an error").to_string();
        assert!(why.contains("cargo xtask rival stop emulator"), "{why}");
        scratch.passed();
    }

    #[test]
    fn a_rival_of_the_task_is_stopped_with_it() {
        let scratch = Scratch::new("rival-own").unwrap();
        let mut process = sleeper();
        drop(Running {
            rival: Rival::Emulator,
            place: place(&scratch, &process),
            url: String::new(),
            started: vec![emulator::PART.name],
        });
        assert!(process.ended().unwrap().is_some());
        scratch.passed();
    }

    #[test]
    fn parts_that_ran_before_outlive_those_that_the_task_started() {
        let scratch = Scratch::new("rival-parts").unwrap();
        let place = Place::of(&scratch.join("hbase").to_string_lossy());
        place.prepare(true).unwrap();
        let parts = Rival::Hbase.parts();
        let mut processes: Vec<_> = parts.iter().map(|_| sleeper()).collect();
        for (part, process) in parts.iter().zip(&processes) {
            let identity = Identity::of(process.pid()).unwrap();
            fs::write(place.pid_file(part.name), format!("{identity}\n")).unwrap();
        }
        let last = parts.len() - 1;
        let running = Running {
            rival: Rival::Hbase,
            place,
            url: String::new(),
            started: vec![parts[last].name],
        };
        assert!(!running.is_own());
        running.stop().unwrap();
        let ended: Vec<_> = processes
            .iter_mut()
            .map(|process| process.ended().unwrap().is_some())
            .collect();
        assert!(ended[last] && ended[..last].iter().all(|ended| !ended), "{ended:?}");
        scratch.passed();
    }
}
