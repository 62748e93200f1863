//! The times at which operations of an open loop are due.
//!
//! In a closed loop a stalled server slows its own clients down, and the requests that would have been slow are never
//! sent. The stall is recorded once for each client (hstack's throughput formula has this error built in). In an open
//! loop operation `k` is due at a time fixed in advance. Its latency counts from then, even if no client is free to
//! send it.
//!
//! Pure: times are seconds since the run's start.

use crate::plan::OpenLoop;

/// Due times of one worker's operations.
#[derive(Debug)]
pub struct Pace {
    per_second: f64,
    poisson: bool,
    seed: u64,
    next: u64,
    due: f64,
}

impl Pace {
    /// The share of an open loop that a worker with `clients` of `all_clients` has.
    pub fn new(open: OpenLoop, clients: u32, all_clients: u32, seed: u64) -> Self {
        let share = f64::from(clients) / f64::from(all_clients.max(1));
        let mut pace = Self {
            per_second: (open.per_second * share).max(f64::MIN_POSITIVE),
            poisson: open.poisson,
            seed,
            next: 0,
            due: 0.0,
        };
        if open.poisson {
            pace.due = pace.gap();
        }
        pace
    }

    /// The time at which the next operation is due. Each call is another operation.
    pub fn take(&mut self) -> f64 {
        let due = self.due;
        self.next += 1;
        // Even gaps are multiplied, so that rounding errors do not add up over hours.
        self.due = if self.poisson {
            due + self.gap()
        } else {
            self.next as f64 / self.per_second
        };
        due
    }

    /// When the next operation is due, without taking it.
    pub fn next_due(&self) -> f64 {
        self.due
    }

    /// Skips the operations that were due before a replacement worker began.
    pub fn skip_to(&mut self, seconds: f64) {
        while self.due < seconds {
            self.take();
        }
    }

    /// An exponential gap, the same for the same seed and operation.
    fn gap(&self) -> f64 {
        let bits = xxhash_rust::xxh3::xxh3_64_with_seed(&self.next.to_le_bytes(), self.seed);
        // (0, 1]: the logarithm of zero has no value.
        let uniform = ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -uniform.ln() / self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BinaryHeap;

    fn dues(poisson: bool, count: usize) -> Vec<f64> {
        let mut pace = Pace::new(
            OpenLoop {
                per_second: 1_000.0,
                poisson,
            },
            1,
            2,
            42,
        );
        (0..count).map(|_| pace.take()).collect()
    }

    #[test]
    fn even_gaps_are_even_and_do_not_drift() {
        let dues = dues(false, 1_000_001);
        assert_eq!((dues[0], dues[1], dues[1_000_000]), (0.0, 0.002, 2_000.0));
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_deviation_of_an_exponential() {
        let dues = dues(true, 200_000);
        let gaps: Vec<f64> = dues.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Of an exponential, mean and deviation are both 1/rate; 200,000 samples put the mean within 1 % (4.5 sigma).
        assert!((mean * 500.0 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() * 500.0 - 1.0).abs() < 0.02, "{}", variance.sqrt());
    }

    /// One server, constant service time, Poisson arrivals: M/D/1, whose mean wait is known (Pollaczek-Khinchine):
    /// `W = rho * service / (2 * (1 - rho))`. Clients that are busy must not thin out the arrivals.
    #[test]
    fn waiting_in_an_open_loop_is_that_of_an_m_d_1_queue() {
        let (rate, service, clients) = (500.0, 0.001_6, 64_usize);
        let load: f64 = rate * service;
        let mut pace = Pace::new(
            OpenLoop {
                per_second: rate,
                poisson: true,
            },
            1,
            1,
            7,
        );
        // Clients in order of when they are free again; each takes the next due operation.
        let mut free: BinaryHeap<std::cmp::Reverse<u64>> = (0..clients).map(|_| std::cmp::Reverse(0)).collect();
        let (mut server_free, mut waits, count) = (0.0_f64, 0.0, 400_000);
        for _ in 0..count {
            let due = pace.take();
            let std::cmp::Reverse(at) = free.pop().expect("clients");
            let sent = due.max(at as f64 / 1e9);
            let begins = sent.max(server_free);
            server_free = begins + service;
            free.push(std::cmp::Reverse((server_free * 1e9) as u64));
            waits += begins - due;
        }
        let expected = load * service / (2.0 * (1.0 - load));
        let mean = waits / f64::from(count);
        assert!(
            (mean / expected - 1.0).abs() < 0.05,
            "mean wait {mean}, closed form {expected}"
        );
    }

    #[test]
    fn a_replacement_does_not_catch_up_on_what_is_over() {
        let mut pace = Pace::new(
            OpenLoop {
                per_second: 10.0,
                poisson: false,
            },
            1,
            1,
            0,
        );
        pace.skip_to(2.05);
        assert!((pace.take() - 2.1).abs() < 1e-9);
    }
}
