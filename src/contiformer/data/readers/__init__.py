"""From files, frames and arrays to sets, and back: each module reads and writes one format."""
