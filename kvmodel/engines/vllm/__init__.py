"""vLLM: adapters for its KV-cache manager and its scheduler, and a recorder. Nothing here imports vLLM before it is asked to."""
