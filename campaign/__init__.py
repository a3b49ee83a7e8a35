"""A campaign against the library: random inputs, each judged, with the seeds of all failures.

    python -m campaign --count 1000 --seconds 3600

A *case* follows from its seed. It runs in a worker process within bounds of time and memory, and
its record is one line of JSON in the folder of the campaign. A campaign that is started again
continues with the seeds that have no record. The table of all records is docs/reliability.md.
"""
