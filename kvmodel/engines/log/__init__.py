"""The event log of a real engine: JSON Lines that name actions of a spec, written by recorders and checked against that spec."""
