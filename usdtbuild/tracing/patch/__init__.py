"""The patch engine (x86-64, aarch64): sites become jumps to trampolines in memory that the process shares with us.

The process is stopped for milliseconds, and afterwards nothing is attached to it. `machine` says what is needed of a
machine: which sites can change, and what their trampolines are. On x86-64, `forms` says which sites can become a jump
and over which distance, `slots` are calls of library functions, `code` writes trampolines; on aarch64 `code_aarch64`
does, out of `a64`. `layout` decides what lies where; `mapping` is the memory that we share, `injection` gets it there;
`changes` is what we change, with the `journal` of it; `rings` reads records; `engine` is the whole, from top to bottom.

Why every state in between is valid code: on aarch64, where a word changes, `aarch64` says it. On x86-64, of a site only
its first byte changes, a NOP's (or a return's), and it becomes `e9`, whose distance is what stood behind it anyway.
Where the jump then leads, the *mirror*, a page of ours stands before the site is touched, and stays for good. Bytes
behind the first change only inside of NOPs, in places where any value is a NOP of the same length, or behind a return.
So a thread, a signal frame or a kernel uprobe that is anywhere at the site goes on with right code, whatever happens,
even if we are killed between two bytes. Where somebody else may put a breakpoint within the four bytes, at any
instruction that begins there, there are mirrors for the distances with it, too, or nothing that could be executed.

A trampoline behind a NOP of one byte goes on with copies of the instructions that begin within the four bytes, where
they do the same anywhere (`machines.x86_64.moving`), and then behind these. It compares the four bytes before that, so
it goes on at the site itself when a breakpoint is there. One that comes between the comparison and the copy comes too
late for this thread, as if it had come an instruction later. A thread that stands among the copies when all is put back
goes on to the program's own code like from anywhere else in the trampoline.

Where that finds no memory, and a jump or call with a distance of four bytes is right behind a NOP of one byte, the low
three bytes of its distance change, too, and give the site's jump as many others. All six bytes lie on one page and
change at once, while all threads stand. Where the jump or call behind leads then, a page of ours has a jump to where it
led before. It stays a jump or call of the same length, with the same return address, so a thread or a signal frame
between the two, whoever jumps there, and a uprobe, which runs it as the file has it and puts nothing back but its first
byte, go on with right code before, after, and when all is put back, for which threads stand again.

Of a function's entry that has padding, and is safe to patch as `functions` says, two bytes become `eb`, back to the
padding, and the padding a jump to the trampoline. Both change while all threads stand. Nobody runs the padding but by
`eb`, so it is written first and put back last; a thread that stands on it goes on into the function either way. The
entry's two bytes lie on one page, so they change at once, and a thread that stands between them finds `stc`, `clc` or
`cmc`. A uprobe that comes to the entry goes on there, too. Where another site's jump reads the padding, it is left
alone, unless that site is a return.

The jump of a return right before an entry, or a few bytes before it that nobody runs, reads the first bytes of the
entry's jump, or of the jump in its padding. What it reads is on one page, and changes at once with the return, while
all threads stand; a page at a time is also what a kill leaves. The return is put back first. So while it is a jump,
what stands behind it is the entry's: in a padding always, for which any distance is taken that lets both lead to free
memory. At an entry, somebody's breakpoint may come and go, and leaves the file's byte; there are mirrors for these two,
too. Where they have room for one byte only, just before a jump of the entry's mirror, there is `eb`, whose distance is
that jump's `e9` (`forms.steps_of`). If the entry isn't what was expected when it is changed, the return isn't changed.

Code with sites on pages one behind the other is written at once when it is armed, and when it is put back if nothing
of it has changed since, both while all threads stand; the kernel writes a page at a time. Else each site goes back by
itself, as do paddings and calls.

For calls `slots` has an argument of its own.
"""
