//! Dispatcher, workers, loops and clocks.
