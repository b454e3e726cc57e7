"""Readers and writers: files, frames and arrays to sets, and back."""
