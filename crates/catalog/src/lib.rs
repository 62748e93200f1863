//! Catalog records (namespaces, schemas, tablets) and their transactions over coord.
