//! Both ends over pipes in memory.

mod calls;
mod dispatching;
mod loss;
mod malformed;
mod silence;
mod streams;
mod support;
mod traces;
