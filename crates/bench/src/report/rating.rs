//! BG's ratings, from the runs of an experiment whose points are numbers of clients.

use super::number;
use super::results::Results;
use crate::plan::Activity;
use crate::social::soar::{self, Agreement, Bounds, Next, Rating, Trial};
use maud::{Markup, html};

/// The experiment that has ratings.
const EXPERIMENT: &str = "SoAR";

/// A table of both ratings by target. Nothing for other experiments.
pub fn section(results: &Results<'_>) -> Markup {
    let agreement = Agreement::default();
    html! {
        @if results.experiment.id == EXPERIMENT {
            h3 { "Ratings" }
            table {
                thead { tr { th { "target" } th { "SoAR, actions/s" } th { "with clients" } th { "Socialites, clients" } th {} } }
                tbody {
                    @for (index, party) in results.bundle.parties.iter().enumerate() {
                        @match rate(results, index, &agreement) {
                            Some(rating) => tr {
                                td { (party.name) }
                                td.number { (number::short(rating.soar)) }
                                td.number { (rating.soar_clients) }
                                td.number { (rating.socialites) }
                                td { (remark(&rating)) }
                            },
                            None => tr { td { (party.name) } td colspan="4" { "no run to rate" } },
                        }
                    }
                }
            }
            p.note {
                "The highest rate, and the most clients, with which " (agreement.fast_share * 100.0) " % of actions took at most "
                (agreement.fast_millis) " ms and at most " (agreement.unpredictable_share * 100.0)
                " % of reads were unpredictable. Runs that failed for more than stale reads are not rated."
            }
        }
    }
}

fn remark(rating: &Rating) -> &'static str {
    match (rating.socialites_unbounded, rating.incomplete) {
        (true, _) => "more clients than were tried may keep it too",
        (false, true) => "lower bounds: numbers of clients in between were not tried",
        (false, false) => "",
    }
}

fn rate(results: &Results<'_>, party: usize, agreement: &Agreement) -> Option<Rating> {
    let mut trials = Vec::new();
    for row in results
        .rows
        .iter()
        .filter(|row| matches!(row.run.activity, Activity::Social(_)) && row.run.point.is_some())
    {
        let runs = row.cells.get(party).map_or(&[][..], |cell| &cell.runs);
        // The agreement has a limit for stale reads, so a run that failed for them counts. Other failures do not: a run
        // that was interrupted or lost its workers says nothing about its clients.
        trials.extend(
            runs.iter()
                .filter(|run| run.seconds > 0.0 && run.passed_but_for_stale_reads())
                .filter_map(|run| Trial::of(run, agreement).ok()),
        );
    }
    let clients_max = trials.iter().map(|trial| trial.clients).max()?;
    let bounds = Bounds {
        clients_max,
        trials_max: trials.len(),
        ..Bounds::default()
    };
    match soar::next(agreement, &bounds, &trials) {
        Next::Done(rating) => Some(rating),
        Next::Try(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{Bundle, Party};
    use crate::outcome::{EncodedHistogram, Ending, KindOutcome, RunOutcome, histogram};
    use crate::plan::{Experiment, Point, Run, SocialSpec, Stage, Suite};

    fn outcome(clients: u32, rate: u64, millis: u64) -> RunOutcome {
        let mut latencies = histogram::new();
        latencies.record_n(millis * 1_000, rate).expect("in range");
        RunOutcome {
            experiment: EXPERIMENT.into(),
            label: format!("clients-{clients}"),
            repeat: 1,
            seconds: 1.0,
            clients,
            kinds: vec![KindOutcome {
                name: "view-profile".into(),
                operations: rate,
                steps: rate,
                histogram: EncodedHistogram::encode(&latencies),
                ..KindOutcome::default()
            }],
            ..RunOutcome::default()
        }
    }

    fn bundle(runs: Vec<RunOutcome>) -> Bundle {
        let stage = |run: &RunOutcome| {
            Stage::Run(Box::new(Run {
                label: run.label.clone(),
                activity: Activity::Social(SocialSpec::default()),
                point: Some(Point {
                    series: "1 %".into(),
                    x: run.clients.to_string(),
                }),
                clients: run.clients,
                ..Run::default()
            }))
        };
        let experiment = Experiment {
            id: EXPERIMENT.into(),
            stages: runs.iter().map(stage).collect(),
            ..Experiment::default()
        };
        Bundle {
            suite: Suite {
                experiments: vec![experiment],
                ..Suite::default()
            },
            parties: vec![Party::default()],
            runs,
            ..Bundle::default()
        }
    }

    fn rating(runs: Vec<RunOutcome>) -> Option<Rating> {
        let bundle = bundle(runs);
        rate(&super::super::results::of_bundle(&bundle)[0], 0, &Agreement::default())
    }

    #[test]
    fn the_best_run_that_keeps_the_agreement_is_the_rating() {
        let runs = vec![outcome(1, 100, 5), outcome(2, 190, 20), outcome(4, 250, 500)];
        let rating = rating(runs).expect("a rating");
        assert_eq!((rating.soar, rating.soar_clients, rating.socialites), (190.0, 2, 2));
        assert!(!rating.socialites_unbounded);
    }

    #[test]
    fn runs_that_failed_for_more_than_stale_reads_are_not_rated() {
        let failed = |causes: &[&str]| {
            let mut run = outcome(2, 190, 20);
            (run.verdict.checked, run.verdict.stale) = (1_000_000, 3);
            run.ending = Ending::Failed(causes.iter().map(|cause| (*cause).to_owned()).collect());
            let rating = rating(vec![outcome(1, 100, 5), run]).expect("a rating");
            rating.soar_clients
        };
        assert_eq!(failed(&["3 stale reads"]), 2, "within the agreement");
        assert_eq!(failed(&["the last worker died"]), 1);
        assert_eq!(failed(&["interrupted", "3 stale reads"]), 1);
        assert_eq!(
            failed(&["3 stale reads", "the check afterwards found: 1 rows missing"]),
            1
        );
    }
}
