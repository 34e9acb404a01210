"""Events from sources through filters to outputs, buffered on the way.

    source --Batch--> router.Router --> filters --> output
                                                      |
      unbuffered: process(tag, batch)                 | buffered: runner.Runner
                                                      v
      intake.Intake (format, split, room) --> buffer.Buffer (staged, queued, in flight)
                                                      |            kept by memory.py or journal.py
                                                      v
      lanes.Lanes: lane n takes a chunk when the retry.Gate is open, output.write(chunk, lane), commit

event.py     Batch: events packed or unpacked; nanoseconds; nothing is lost in packing
plugin.py    base classes and their lifecycle      context.py  what a plugin sees of the pipeline
match.py     tag patterns                          router.py   labels, filters, @ERROR
settings.py  the <buffer> section                  placeholders.py  chunk keys, ${tag}, %Y, timekey
chunk.py     what an output gets to deliver        codec.py    one gzip member or zstd frame a chunk
files.py     the only way to the disk              segment.py  the records of a journal file
queue.py     which chunk is next            staging.py  when staged chunks are queued
ack.py       what an acknowledgement waits for
adopt.py     chunks in Fluentd's files         fluentfiles.py  their names and .meta files
backup.py    dead letters: chunks given up     refused.py  records that somebody refused
inventory.py what is on disk, for the command line
retry.py     when to try again, when to give up    build.py    fluent.conf -> Pipeline
"""
