"""Real engines: what their logs, metrics and configuration say, and what the specs say about that."""
