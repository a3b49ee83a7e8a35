"""A campaign against the library: random cases, each judged, with the seeds of all failures.

    python -m campaign                         all kinds of cases, for an hour
    python -m campaign --kinds files kills     some kinds
    python -m campaign --kinds tables --only 7 one case again, without a record

The kinds are modules: `tables`, `files`, `kills`, `interruptions`, `concurrency`. Each has
``judged(seed)``, which returns the record of a case with the list of what failed. A case follows
from its seed. It runs in a worker process within bounds of time and memory, and its record is one
line of JSON in the folder of the campaign. A campaign that is started again continues with the
seeds that have no record. The table of all records is docs/reliability.md.
"""
