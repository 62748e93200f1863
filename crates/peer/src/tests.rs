//! Both ends over pipes in memory.

mod calls;
mod dispatching;
mod loss;
mod malformed;
mod streams;
mod support;
mod traces;
