/* The checksum of the sources, from setup.py: Python reads structs from them, and refuses a library of others. */

unsigned contiformer_checksum(void) { return SOURCES; }
