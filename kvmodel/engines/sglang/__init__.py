"""SGLang's own code, on CPU: its token allocators, and the path of a request through a prefill and a decode node.

`boot` imports a release with stand-ins for GPU kernels and everything else that page bookkeeping does not need; `allocators` and
`engine` are the adapters; `nodes` puts two nodes together from the release's own classes, `loopback` is the transfer between them; all
that differs between releases is in `drift`. `recorder` writes an event log from a server. Nothing is imported before `boot` is called.
"""
