//! Commands that speak the public API: import, export, count, scan, get, put, tables.
