//! Serves tablets: log streams, memory limits, maintenance, recovery.
