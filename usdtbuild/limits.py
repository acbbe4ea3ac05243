"""How much of what comes from outside is read, at most. Beyond a limit stands a clear error, never more memory.

A binary, a process and a gdb server can claim any size. Each limit is far above what real programs need, and keeps a
command below some 300 MB whatever it is given (ANSWER_MEMORY is for a reading process that was taken over).
"""

from __future__ import annotations

# Sites of one format in a file, and their arguments: a site and an argument cost a kilobyte each when they are listed.
# The largest programs that are known have some thousand sites.
NOTES, ARGUMENTS = 100_000, 1 << 17
# Bytes of text in one SDT note, and in all of a section.
NOTE_TEXT, NOTES_TEXT = 1 << 14, 3 << 19
# Bytes of a provider file.
PROVIDER_FILE = 64 << 20
# Folders within folders that are looked through.
FOLDERS = 200
# Bytes of the ELF file that is compressed in `.gnu_debugdata`; distributions put function names there, some megabytes.
MINI_DEBUG_DATA = 64 << 20
# Bytes of a program's compressed debug sections, decompressed, and how much DEFLATE can make of one byte.
COMPRESSED_DEBUG, DEFLATE_RATIO = 128 << 20, 1032
# Of debug information that is read for functions' arguments: its bytes, seconds of CPU time, and memory. It takes
# pyelftools half a second and 60 MB for a large unit of C++. What was found is kept: bytes for one file, and files.
DEBUG, DEBUG_SECONDS, DEBUG_MEMORY, KEPT, KEPT_FILES = 256 << 20, 10, 1 << 30, 16 << 20, 200
# Seconds that a debuginfod server may take for a file, of ANSWER bytes at most.
DOWNLOAD_SECONDS = 30.0
# Alignment of a section in an object that is laid out: no page is larger on any machine.
SECTION_ALIGNMENT = 1 << 16
# Processes that one trace is about: each has some open files, and buffers of its own.
TARGETS = 500
# Entries of a journal that an earlier trace has left in a process, and the parts of its memory.
JOURNAL_ENTRIES, JOURNAL_PARTS = 1 << 20, 1 << 16
# Of a gdb server: bytes of a packet, a packet that we send, an object, a file; threads, parts of a description of
# registers, registers and their bytes. SVE has the widest registers, and SME's matrices 64 KB.
PACKET, PACKET_SENT, SERVER_OBJECT, SERVER_FILE = 1 << 22, 1 << 20, 16 << 20, 256 << 20
THREADS, ANNEXES, REGISTERS, REGISTER_SIZE = 1 << 16, 64, 1 << 14, 1 << 16
# Bytes that a process without rights may answer when it has read files, and the memory that its answer may take: a
# hundred thousand functions take 9 MB and 80 MB, more where their names are long.
ANSWER, ANSWER_MEMORY = 64 << 20, 512 << 20
# Of names that are demangled: characters of a name as it is linked, bytes of it as it was written (each type in it can
# be twice the one before), the demangler's memory, and seconds of CPU time for every so many names.
MANGLED_NAME, WRITTEN_NAME, DEMANGLER_MEMORY, DEMANGLER_SECONDS, DEMANGLED = 4096, 16384, 128 << 20, 2, 100_000
# Bytes and files of a project that `usdtbuild add` copies to try its changes.
PROJECT, PROJECT_FILES = 4 << 30, 200_000
# Bytes of a report of calls that is compared with another.
REPORT = 64 << 20
# How much longer than its mangled form a name may be as it was written, to be shown so: times, and bytes besides.
WRITTEN_RATIO = 16, 256
