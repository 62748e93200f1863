//! Coordination: durable keys with transactions, sessions, watches. Embedded backend.
