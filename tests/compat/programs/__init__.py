"""Programs that tests start, pause and kill: a member, a transactional producer or a worker.

One for each client family, all with the same lines of JSON: what to be as the first argument, what
to do on standard input, what happened on standard output.
"""
