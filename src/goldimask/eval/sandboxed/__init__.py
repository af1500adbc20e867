"""What runs inside the sandbox: `start` locks itself in, then splits into `program` and `judge`.

The program and its judge are two processes that share nothing but two pipes. Plain values cross
them (`wire`). The tests are read by the judge after the split, so no memory that the program can
see has ever held them; the pipe to the outside is the judge's alone. Imports nothing of goldimask.
"""
