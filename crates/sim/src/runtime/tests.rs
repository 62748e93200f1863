//! The runtime: time, randomness, schedules, ends.

use super::*;
use tokio::sync::{mpsc, oneshot};

/// The output of three tasks that talk over a channel, with the run's trace.
fn conversation(seed: u64) -> (Vec<u64>, u64) {
    let sim = Sim::new(seed, 10_000);
    let env = sim.process().env();
    let said = sim.run(async move {
        let (say, mut hear) = mpsc::channel(1);
        for speaker in 0..3u64 {
            let (say, env2) = (say.clone(), env.clone());
            env.spawn("speaker", async move {
                for _ in 0..5 {
                    env2.sleep(Duration::from_micros(env2.random_below(3))).await;
                    let _ = say.send(speaker).await;
                }
            });
        }
        drop(say);
        let mut said = Vec::new();
        while let Some(speaker) = hear.recv().await {
            said.push(speaker);
        }
        said
    });
    (said.unwrap(), sim.trace_hash())
}

#[test]
fn a_seed_gives_one_history_and_seeds_give_many() {
    let mut histories = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let first = conversation(seed);
        assert_eq!(first, conversation(seed), "seed {seed}");
        assert_eq!(first.0.len(), 15);
        histories.insert(first.0);
    }
    assert!(histories.len() > 15, "only {} different schedules", histories.len());
}

#[test]
fn time_jumps_over_idleness() {
    let sim = Sim::new(1, 1_000);
    let env = sim.process().env();
    let (slept, wall) = sim
        .run(async move {
            let (start, wall) = (env.now(), env.wall_micros());
            env.sleep(Duration::from_secs(3_600)).await;
            (env.now() - start, env.wall_micros() - wall)
        })
        .unwrap();
    assert!(
        slept >= Duration::from_secs(3_600) && slept < Duration::from_secs(3_601),
        "{slept:?}"
    );
    assert!((3_600_000_000..3_601_000_000).contains(&wall), "{wall}");
    assert!(sim.steps() < 10);
}

#[test]
fn timeouts_end_what_hangs() {
    let sim = Sim::new(1, 1_000);
    let env = sim.process().env();
    let outcome = sim.run(async move { env.timeout(Duration::from_secs(1), std::future::pending::<()>()).await });
    assert_eq!(outcome, Ok(Err(stele_env::Elapsed)));
    assert!(
        sim.scheduler.inner.lock().timers.is_empty(),
        "a dropped sleep leaves no timer"
    );
}

#[test]
fn deadlocks_and_livelocks_are_errors() {
    let sim = Sim::new(1, 1_000);
    let stalled = sim.run(std::future::pending::<()>()).unwrap_err();
    assert!(
        matches!(&stalled, Stalled::Deadlock { tasks, .. } if tasks == "1 main"),
        "{stalled}"
    );

    let sim = Sim::new(1, 1_000);
    let env = sim.process().env();
    let stalled = sim.run(async move {
        loop {
            env.yield_now().await;
        }
    });
    let stalled: Result<(), Stalled> = stalled;
    assert!(matches!(stalled, Err(Stalled::Endless { .. })));
}

#[test]
fn a_killed_process_drops_its_tasks_and_starts_no_more() {
    struct SpawnOnDrop(Env, Arc<Mutex<u32>>);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            *self.1.lock() += 1;
            let ran = self.1.clone();
            self.0.spawn("late", async move { *ran.lock() += 100 });
        }
    }
    let sim = Sim::new(1, 1_000);
    let (driver, server) = (sim.process().env(), sim.process());
    let dropped = Arc::new(Mutex::new(0));
    let guard = SpawnOnDrop(server.env(), dropped.clone());
    let (answer, answered) = oneshot::channel::<()>();
    server.env().spawn("server", async move {
        let _guard = guard;
        std::future::pending::<()>().await;
        let _ = answer.send(());
    });
    let outcome = sim.run(async move {
        driver.sleep(Duration::from_secs(1)).await;
        server.kill();
        let outcome = answered.await;
        driver.sleep(Duration::from_secs(1)).await;
        outcome
    });
    assert!(
        outcome.unwrap().is_err(),
        "whoever waits for a dead process learns of it"
    );
    assert_eq!(*dropped.lock(), 1);
}

#[test]
fn the_wall_clock_jumps_alone() {
    let sim = Sim::new(1, 1_000);
    let env = sim.process().env();
    let (now, wall) = (env.now(), env.wall_micros());
    sim.jump_wall_clock(-5_000_000);
    assert_eq!((env.now(), env.wall_micros()), (now, wall - 5_000_000));
}

#[test]
fn a_machine_that_has_run_is_freed_with_what_its_tasks_held() {
    for stalls in [false, true] {
        let sim = Sim::new(1, 1_000);
        let (env, held) = (sim.process().env(), Arc::new(()));
        let (own, left) = (env.clone(), held.clone());
        env.spawn("server", async move {
            let _held = left;
            own.sleep(Duration::from_secs(1)).await;
            std::future::pending::<()>().await;
        });
        let seen = sim.clone();
        let outcome = sim.run(async move {
            env.sleep(Duration::from_secs(2)).await;
            let _seen = seen;
            if stalls {
                std::future::pending::<()>().await;
            }
        });
        assert_eq!(outcome.is_err(), stalls);
        assert_eq!(Arc::strong_count(&held), 1, "a task was not dropped");
        let scheduler = Arc::downgrade(&sim.scheduler);
        drop(sim);
        assert!(scheduler.upgrade().is_none(), "the machine outlives its run");
    }
}

/// The same for a run that fails; and a task that is spawned during a drop never exists.
#[test]
fn with_a_run_all_its_processes_end() {
    /// Starts another task when it is dropped.
    struct Held(Env, Arc<()>);
    impl Drop for Held {
        fn drop(&mut self) {
            let held = self.1.clone();
            self.0.spawn("late", async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
        }
    }
    for stalls in [false, true] {
        let sim = Sim::new(1, 1_000);
        let held = Arc::new(());
        // A task that waits, one with a timer, and one that was never polled, all of processes that were not killed.
        for name in ["waits", "sleeps"] {
            let env = sim.process().env();
            let task = Held(env.clone(), held.clone());
            env.clone().spawn(name, async move {
                let held = task;
                if name == "sleeps" {
                    held.0.sleep(Duration::from_secs(3_600)).await;
                }
                std::future::pending::<()>().await;
            });
        }
        let env = sim.process().env();
        let (sleeper, last) = (env.clone(), held.clone());
        let outcome = sim.run(async move {
            sleeper.sleep(Duration::from_secs(1)).await;
            env.spawn("new", async move {
                let _last = last;
                std::future::pending::<()>().await;
            });
            if stalls {
                std::future::pending::<()>().await;
            }
        });
        assert_eq!(outcome.is_err(), stalls);
        assert_eq!(Arc::strong_count(&held), 1, "a task outlives its run");
        assert!(sim.scheduler.inner.lock().tasks.is_empty());
        assert!(sim.scheduler.inner.lock().timers.is_empty());
        // Nor does the machine start anything afterwards.
        let (env, late) = (sim.process().env(), held.clone());
        env.spawn("afterwards", async move {
            let _late = late;
            std::future::pending::<()>().await;
        });
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

#[test]
fn a_process_that_stands_still_lets_others_run() {
    let sim = Sim::new(1, 100_000);
    let (still, other) = (sim.process(), sim.process());
    let ticks = |process: &Process| {
        let ticks = Arc::new(Mutex::new(0u64));
        let (counted, env) = (ticks.clone(), process.env());
        process.env().spawn("ticks", async move {
            loop {
                env.sleep(Duration::from_millis(1)).await;
                *counted.lock() += 1;
            }
        });
        ticks
    };
    let (of_still, of_other) = (ticks(&still), ticks(&other));
    let env = sim.process().env();
    let process = still.clone();
    let counts = sim.run(async move {
        env.sleep(Duration::from_millis(10)).await;
        process.stand_still(Duration::from_millis(100));
        let before = *of_still.lock();
        env.sleep(Duration::from_millis(50)).await;
        let (during, meanwhile) = (*of_still.lock() - before, *of_other.lock());
        // Requests to it meanwhile wait, too.
        let asked = process.env();
        let answer = asked.spawn_join(Priority::Foreground, "request", async { 7 }).await;
        let answered = (answer, env.now());
        env.sleep(Duration::from_millis(50)).await;
        (during, meanwhile, answered, *of_still.lock() - before)
    });
    let (during, meanwhile, (answer, at), after) = counts.unwrap();
    assert_eq!((during, answer), (0, Ok(7)));
    assert!(meanwhile > 50, "{meanwhile}");
    assert!(at >= Duration::from_millis(110), "{at:?}");
    assert!((40..60).contains(&after), "{after}");
}

#[test]
fn a_process_that_stands_still_is_no_deadlock_and_can_be_ended() {
    let sim = Sim::new(1, 1_000);
    let (still, tester) = (sim.process(), sim.process());
    let (asked, env) = (still.env(), tester.env());
    let outcome = sim.run(async move {
        still.stand_still(Duration::from_secs(60));
        let answer = asked.spawn_join(Priority::Foreground, "request", async { 7 }).await;
        still.stand_still(Duration::from_secs(60));
        let never = asked.spawn_join(Priority::Foreground, "request", async { 8 });
        let killed = async {
            env.sleep(Duration::from_secs(1)).await;
            still.kill();
        };
        let (never, ()) = futures::future::join(never, killed).await;
        (answer, never, still.has_ended())
    });
    assert_eq!(outcome, Ok((Ok(7), Err(stele_env::Gone), true)));
}

#[test]
fn processors_work_side_by_side_and_do_one_thing_at_a_time() {
    let sim = Sim::new(1, 10_000);
    let env = sim.process().env();
    let processes = [sim.process(), sim.process()];
    processes.iter().for_each(Process::give_processor);
    let working = processes.clone();
    let took = sim
        .run(async move {
            let began = env.now();
            let tasks = working.iter().flat_map(|process| [process, process]).map(|process| {
                let (env, sleeping) = (process.env(), process.env());
                let work = async move {
                    let until = real_time() + Duration::from_millis(10);
                    while real_time() < until {
                        std::hint::spin_loop();
                    }
                    sleeping.sleep(Duration::from_nanos(1)).await;
                };
                async move { env.spawn_join(Priority::Foreground, "work", work).await }
            });
            futures::future::join_all(tasks).await;
            env.now() - began
        })
        .unwrap();
    let worked = processes.map(|process| process.worked());
    let both = Duration::from_millis(20);
    assert!(worked.iter().all(|worked| *worked >= both), "{worked:?}");
    assert!(took >= both && took < worked[0] + worked[1], "{took:?} for {worked:?}");
    assert_eq!(sim.process().worked(), Duration::ZERO);
}
