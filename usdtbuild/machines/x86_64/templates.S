# The machine code that usdtbuild puts into traced x86-64 programs, and into its own process, as templates.
#
# A template is what stands between `template NAME` and `end NAME`. An undefined symbol is a hole: `Code.add` in
# ../templates.py fills it with a number, or with the distance to an address. tools/templates.py assembles this file and
# writes templates.py from the object: the bytes of each template, and its relocations, which are the holes.
#
# What the routines and records are for is told in tracing/patch/code.py.

        .macro  template name
        .globl  \name
\name:
        .endm
        .macro  end name
        .size   \name, . - \name
        .endm

        RINGS = 16              # rings of a trace, by the low bits of the thread's number
        RING_HEADER = 4096      # head at 0, tail at 64, ready at 72; slots behind
        TAIL = 64
        READY = 72
        GONE = 80               # nobody waits any more where there is no room
        WAITED = 88             # ticks that threads have waited
        TIME = 8                # in a slot; the sequence is at 0
        THREAD = 16
        SITE = 20
        PROCESS = 24
        MISSING = 28
        RED_ZONE = 128          # below the stack pointer, alive (System V ABI, 3.2.2)
        TRIES = 64              # for a slot that nobody is writing to
        SAVED_RDI = 0           # where `save` puts registers, from the stack pointer
        SAVED_RSI = 8
        SAVED_RDX = 16
        SAVED_RCX = 24
        SAVED_RAX = 32
        KEY = 40                # where a key of several words is made, in the room above: how many bytes, then these
        CUT = 62                # the bit of a string's length that says so
        HELD = KEY + 272        # behind 256 bytes, and the end of a text
        HELD_KEY = KEY + 280
        NO_HOW = 99             # rt_sigprocmask: no such way to change a mask
        EFAULT = 14
        SIGURG = 23

# -- going on ----------------------------------------------------------------------------------------------------------

template jump
        jmp     target
end jump

template jump_through           # wherever the slot leads by then
        jmp     *slot(%rip)
end jump_through

template if_as_armed            # go to `changed` unless the four bytes behind the site are what they were
        cmpl    $tail, behind(%rip)
        jne     changed
end if_as_armed

template jump_behind            # the site
        jmp     behind
end jump_behind

template return
        ret
end return

template count
        lock incq counter(%rip)
end count

# -- shards (../../tracing/patch/shards.py) -----------------------------------------------------------------------------

        OWNERS = 256            # that a process remembers
        OWNERS_LOOKS = 8        # places that an owner may have

# rax = the number of this thread's shard, by what this process remembers at the thread's place: its number, and above
# that its shard. Goes to `unknown` if that is another thread's, which comes back to `known`; to `shared` if it has none.
# Changes rcx.
        .macro  own_number template
        mov     %fs:tid_offset, %eax
        and     $OWNERS - 1, %eax
        movabs  $owners, %rcx
        mov     (%rcx,%rax,8), %rax
        cmp     %fs:tid_offset, %eax
        jne     unknown
        shr     $32, %rax
\template\().known:
        jz      shared
        .endm

# As `count`, in this thread's shard; `counter` is where it would be in one of the number 0.
template count_own
        lea     -RED_ZONE(%rsp), %rsp
        push    %rax
        push    %rcx
        own_number count_own
        imul    $block, %rax, %rax
        lea     counter(%rip), %rcx
        incq    (%rcx,%rax)
count_own.counted:
        pop     %rcx
        pop     %rax
        lea     RED_ZONE(%rsp), %rsp
end count_own

template count_unknown          # behind the jump that goes on
        call    find_shard
        jmp     known
count_unknown.shared:
        lock incq common(%rip)
        jmp     counted
end count_unknown

# Behind `save_all`: note where this thread's shard is, from that of the number 0, and its number; go to `shared` if it
# has none. Changes rax, rcx.
template own_shard
        own_number own_shard
        mov     %rax, shard + 8(%rsp)
        imul    $block, %rax, %rax
        mov     %rax, shard(%rsp)
end own_shard

template unknown_shard
        call    find_shard
        jmp     known
end unknown_shard

template count_in_shard
        mov     shard(%rsp), %rax
        lea     counter(%rip), %rcx
        incq    (%rcx,%rax)
end count_in_shard

# Find this thread's shard, or take one of those that nobody has had: rax = its number, equal if there is none. A
# handler of a signal that comes in between takes another one, and one of them is lost. Changes rax, rcx.
# How many are left stands where other processes may write: more than there ever were are none.
template find_shard
        push    %rdx
        push    %rsi
        push    %rdi
        push    %r8
        push    %r9
        push    %r10
        mov     %fs:tid_offset, %edi
        mov     %edi, %edx
        mov     $OWNERS_LOOKS, %esi
        xor     %r8d, %r8d      # the shard that was taken, and the bit 32: one was asked for
        movabs  $shards_left, %r9
        test    %edi, %edi
        jz      6f
1:      and     $OWNERS - 1, %edx
        movabs  $owners, %rcx
        lea     (%rcx,%rdx,8), %rcx
2:      mov     (%rcx), %rax
        cmp     %eax, %edi
        je      7f
        test    %rax, %rax
        jnz     5f
        bts     $32, %r8
        jc      4f
3:      mov     (%r9), %rax
        lea     -1(%rax), %r10
        cmp     $most_shards, %r10
        jae     4f
        lock cmpxchg %r10, (%r9)
        jne     3b
        or      %rax, %r8
4:      mov     %r8, %r10
        shl     $32, %r10
        or      %rdi, %r10
        xor     %eax, %eax
        lock cmpxchg %r10, (%rcx)
        jne     2b
        mov     %r10, %rax
        jmp     7f
5:      inc     %edx
        dec     %esi
        jnz     1b
6:      xor     %eax, %eax
7:      shr     $32, %rax
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rdi
        pop     %rsi
        pop     %rdx
        ret
end find_shard

# Tell the tracer, if there is one, that libraries have come or gone: SIGURG stops a thread that is traced, and is ignored
# where nobody is told of it. Where it is blocked, `flag` says so instead. Keeps all registers.
template tell
        lea     -RED_ZONE(%rsp), %rsp
        push    %rax
        push    %rcx
        push    %rdx
        push    %rsi
        push    %rdi
        push    %r10
        push    %r11
        push    %rax            # room for the mask
        mov     $rt_sigprocmask, %eax
        xor     %edi, %edi
        xor     %esi, %esi
        mov     %rsp, %rdx
        mov     $8, %r10d
        syscall
        testl   $1 << SIGURG - 1, (%rsp)
        jnz     1f
        mov     $getpid, %eax
        syscall
        mov     %eax, (%rsp)
        mov     $gettid, %eax
        syscall
        mov     (%rsp), %edi
        mov     %eax, %esi
        mov     $SIGURG, %edx
        mov     $tgkill, %eax
        syscall
tell.told:
        jmp     2f
1:      lea     flag(%rip), %rax
        movl    $1, (%rax)
tell.on:
2:      pop     %rax
        pop     %r11
        pop     %r10
        pop     %rdi
        pop     %rsi
        pop     %rdx
        pop     %rcx
        pop     %rax
        lea     RED_ZONE(%rsp), %rsp
end tell

# -- routines ----------------------------------------------------------------------------------------------------------

# Claim a slot: rsi = its address, or 0; rdi = the sequence to store last. Changes rax, rcx, rdx, rsi, rdi.
# One of `thread_at_offset` and `thread_by_call` stands between these two parts, and brings the thread's number in edx.
template claim_process
        movabs  pid_cell, %eax
        test    %eax, %eax
        jnz     1f
        push    %r11            # the system call changes it, and rcx
        mov     $getpid, %eax
        syscall
        pop     %r11
        movabs  %eax, pid_cell
1:      mov     %eax, %edi
end claim_process

template thread_at_offset
        mov     %fs:tid_offset, %edx
end thread_at_offset

template thread_by_call
        push    %r11
        mov     $gettid, %eax
        syscall
        pop     %r11
        mov     %eax, %edx
end thread_by_call

template claim_slot
        mov     %edx, %ecx
        and     $RINGS - 1, %ecx
        shl     $stride_bits, %rcx
        movabs  $rings, %rsi
        add     %rsi, %rcx
1:      mov     (%rcx), %rax
        mov     %rax, %rsi
        sub     TAIL(%rcx), %rsi
        cmp     $slots, %rsi
        jge     full
        mov     %eax, %esi
        and     $slots_mask, %esi
        cmp     READY(%rcx), %esi
        jae     full
        lea     1(%rax), %rsi
        lock cmpxchg %rsi, (%rcx)
        jne     1b
        and     $slots_mask, %eax
        imul    $slot_size, %rax, %rax
        lea     RING_HEADER(%rcx,%rax), %rcx
        mov     %edx, THREAD(%rcx)
        mov     %rdi, PROCESS(%rcx)     # and nothing missing
        mov     %rsi, %rdi
        mov     %rcx, %rsi
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        mov     %rax, TIME(%rsi)
        ret
end claim_slot

# Behind `claim_slot`, at `full`: wait for room, a millisecond at a time, and claim again, as long as the ring is read:
# while `tail` changes within `patience` ticks. Else nobody waits there any more, nor where the trace is over.
template wait_for_room
        cmpq    $0, READY(%rcx)
        je      none
        cmpl    $0, GONE(%rcx)
        jne     none
        push    %rdx
        push    %rdi
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        mov     TAIL(%rcx), %r8
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        mov     %rax, %r9
        push    $1000000        # nanoseconds
        push    $0
        mov     %rsp, %r10
1:      push    %rcx            # the system call changes it, and r11
        lea     TAIL(%rcx), %rdi
        xor     %esi, %esi      # FUTEX_WAIT
        mov     %r8d, %edx
        mov     $futex, %eax
        syscall
        pop     %rcx
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        sub     %r9, %rax
        cmp     %r8, TAIL(%rcx)
        jne     2f
        movabs  $patience, %rdx
        cmp     %rdx, %rax
        jl      1b
        movl    $1, GONE(%rcx)
2:      lock add %rax, WAITED(%rcx)
        pop     %rax
        pop     %rax
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rdi
        pop     %rdx
        cmpl    $0, GONE(%rcx)
        je      again
end wait_for_room

template no_room
        xor     %esi, %esi
        ret
end no_room

# Claim a slot of a ring that keeps the last records, as `claim_slot` does, for rings that nobody reads meanwhile. Each
# claim gets the next number, and the slot of that number if nobody else is writing there: the slot's word is the number
# plus 1 of a complete record, all its bits turned round while a record is written, and only grows. So of two writers
# that are a round of the ring apart the later one finds the slot taken, and gets another number.
        .macro  take_slot taken
        mov     $1, %esi
        lock xadd %rsi, (%rcx)
        mov     %esi, %edx
        and     $slots_mask, %edx
        imul    $slot_size, %rdx, %rdx
        lea     RING_HEADER(%rcx,%rdx), %rdx
        mov     (%rdx), %rax
        inc     %rsi
        cmp     %rsi, %rax
        jae     \taken
        not     %rsi
        lock cmpxchg %rsi, (%rdx)
        jne     \taken
        .endm

template claim_kept
        mov     %edx, %ecx
        and     $RINGS - 1, %ecx
        shl     $stride_bits, %rcx
        movabs  $rings, %rsi
        add     %rsi, %rcx
        shl     $32, %rdx       # the numbers of thread and process in one register
        or      %rdx, %rdi
        take_slot 2f
1:      mov     %edi, %eax
        mov     %rax, PROCESS(%rdx)     # and nothing missing
        shr     $32, %rdi
        mov     %edi, THREAD(%rdx)
        mov     %rdx, %rsi
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        mov     %rax, TIME(%rsi)
        ret
2:      push    %rbx
        mov     $TRIES, %ebx
3:      take_slot 4f
        pop     %rbx
        jmp     1b
4:      dec     %ebx
        jnz     3b
        pop     %rbx
        xor     %esi, %esi
        ret
end claim_kept

# Try the 8 aligned bytes at rbx: equal if they can't be read. Changes rax, rcx, rdx, rsi, rdi, r10, r11.
        .macro  try_rbx
        mov     $rt_sigprocmask, %eax
        mov     $NO_HOW, %edi
        mov     %rbx, %rsi
        and     $-8, %rsi
        je      9f              # NULL means something else to the system call
        xor     %edx, %edx
        mov     $8, %r10d
        syscall
        cmp     $-EFAULT, %rax
9:
        .endm

# Go to a label if what is at rbx is known to be readable without trying: in the page that this stack is in, in the
# `known_size` bytes from `known_from` on (`layout.build`), or in the heap, which begins at `heap` and ends where the C
# library's word at `heap_end` says (`tracing/heap.py`). Changes rax, rcx.
        .macro  known_rbx known
        mov     %rbx, %rax
        xor     %rsp, %rax
        shr     $12, %rax
        jz      \known
        movabs  $known_from, %rax
        mov     %rbx, %rcx
        sub     %rax, %rcx
        cmp     $known_size, %rcx
        jb      \known
        movabs  $heap, %rax
        cmp     %rax, %rbx
        jb      9f
        movabs  $heap_end, %rax
        cmp     (%rax), %rbx
        jb      \known
9:
        .endm

# Copy the string at rdx to 8(%rcx), its length to (%rcx): -1 if it can't be read, with the bit CUT if it goes on where
# nothing can be. Changes rax, rcx, rdx.
# Each page is tried once, where the string enters it. Within it 8 bytes are copied at once, with what stands behind the
# string's end in them, if they have room.
template copy
        push    %rsi
        push    %rdi
        push    %rbx
        push    %r8
        push    %r9
        mov     %rdx, %rbx
        mov     %rcx, %r8
        movq    $-1, (%r8)
        sub     %rdx, %r8       # 8(%r8,%rbx) is where the byte at rbx goes
        push    %rdx
1:      known_rbx 2f
        push    %r10
        push    %r11
        try_rbx
        pop     %r11
        pop     %r10
        je      3f
2:      mov     (%rsp), %rcx
        add     $string_size, %rcx
        mov     %rbx, %rdi
        or      $0xfff, %rdi
        inc     %rdi
        cmp     %rcx, %rdi
        cmova   %rcx, %rdi
        sub     $8, %rdi        # up to here, 8 bytes are in this page and have room
        movabs  $-0x0101010101010101, %rsi
        movabs  $0x8080808080808080, %r9
6:      cmp     %rdi, %rbx
        ja      7f
        mov     (%rbx), %rdx
        mov     %rdx, 8(%r8,%rbx)
        lea     (%rdx,%rsi), %rax
        not     %rdx
        and     %rdx, %rax
        and     %r9, %rax       # the highest bit of the first byte that is 0, and maybe of later ones
        jnz     8f
        add     $8, %rbx
        jmp     6b
8:      bsf     %rax, %rax
        shr     $3, %eax
        add     %rax, %rbx
        jmp     4f
7:      add     $8, %rdi
9:      cmp     %rdi, %rbx
        jae     10f
        mov     (%rbx), %al
        mov     %al, 8(%r8,%rbx)
        test    %al, %al
        je      4f
        inc     %rbx
        jmp     9b
10:     cmp     %rcx, %rbx
        jb      1b
4:      xor     %edi, %edi
        jmp     11f
3:      cmp     (%rsp), %rbx    # at the first byte: the -1 stays; later: what is there is kept
        je      5f
        xor     %edi, %edi
        bts     $CUT, %rdi
11:     pop     %rdx
        add     %rdx, %r8
        sub     %rdx, %rbx
        or      %rdi, %rbx
        mov     %rbx, (%r8)
        jmp     12f
5:      pop     %rdx
12:     pop     %r9
        pop     %r8
        pop     %rbx
        pop     %rdi
        pop     %rsi
        ret
end copy

# Copy the stack from rdx on to 8(%rcx), at most eax bytes, and how many can be read to (%rcx). Each page is tried, except
# the one that this stack is in. Changes rax, rcx, rdx.
template copy_stack
        push    %rsi
        push    %rdi
        push    %rbx
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        push    %rcx
        pushf                   # the direction
        cld
        lea     8(%rcx), %r8
        mov     %eax, %r9d
        mov     %rdx, %rbx
        mov     %rbx, %rax
        xor     %rsp, %rax
        shr     $12, %rax
        jz      2f
1:      try_rbx
        je      3f
2:      mov     %ebx, %ecx
        or      $-4096, %ecx
        neg     %ecx            # bytes up to the end of the page
        cmp     %r9d, %ecx
        cmova   %r9d, %ecx
        sub     %ecx, %r9d
        mov     %rbx, %rsi
        add     %rcx, %rbx
        mov     %r8, %rdi
        rep movsb
        mov     %rdi, %r8
        test    %r9d, %r9d
        jnz     1b
3:      popf
        pop     %rcx
        lea     -8(%r8), %rax
        sub     %rcx, %rax
        mov     %rax, (%rcx)
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rbx
        pop     %rdi
        pop     %rsi
        ret
end copy_stack

# Try whether the 8 bytes at rdx can be read: equal if not. Keeps all registers but rax.
template probe
        push    %rsi
        push    %rdi
        push    %rbx
        push    %rcx
        push    %rdx
        push    %r10
        push    %r11
        mov     %rdx, %rbx
        try_rbx
        je      1f
        add     $7, %rbx        # where the last byte lies
        try_rbx
1:      pop     %r11
        pop     %r10
        pop     %rdx
        pop     %rcx
        pop     %rbx
        pop     %rdi
        pop     %rsi
        ret
end probe

# -- records -----------------------------------------------------------------------------------------------------------

# rsi is the slot, rdi the sequence to store last; rax, rcx and rdx are free.
        .macro  restore_all
        pop     %rdi
        pop     %rsi
        pop     %rdx
        pop     %rcx
        pop     %rax
        lea     RED_ZONE(%rsp), %rsp
        .endm

template save_all
        lea     -RED_ZONE(%rsp), %rsp
        push    %rax
        push    %rcx
        push    %rdx
        push    %rsi
        push    %rdi
end save_all

template restore_all
        restore_all
end restore_all

template make_room              # before `save_all`, for a key of several words or the place of a shard
        lea     less_room(%rsp), %rsp
end make_room

template give_room              # behind `restore_all`
        lea     room(%rsp), %rsp
end give_room

template record_begin           # behind `save_all`
        call    claim
        test    %rsi, %rsi
        jz      full
        movl    $site, SITE(%rsi)
end record_begin

template record_end
        mov     %rdi, (%rsi)
end record_end

# In a ring that keeps the last records: nothing comes behind the record that was waited for. The one whose writing that
# is stores its time where all others look before they claim.
template unless_stopped         # behind `save_all`
        movabs  $stop, %rsi
        cmpq    $0, (%rsi)
        jne     over
end unless_stopped

template record_end_kept
        notq    (%rsi)
end record_end_kept

template record_end_stopping
        mov     TIME(%rsi), %rdx
        notq    (%rsi)
        movabs  $stop, %rsi
        mov     %rdx, (%rsi)
end record_end_stopping

template store                  # the argument in rax
        mov     %rax, at(%rsi)
end store

template constant
        movabs  $value, %rax
end constant

template missing                # the argument can't be had: its bit says so
        orl     $bit, MISSING(%rsi)
end missing

template string                 # what was stored last points to a text
        mov     at(%rsi), %rdx
        lea     string_at(%rsi), %rcx
        call    copy
end string

template stack                  # what was stored last is the stack pointer
        mov     at(%rsi), %rdx
        lea     string_at(%rsi), %rcx
        mov     $size, %eax
        call    copy_stack
end stack

        .irp    bits, 8, 16, 24, 32, 40, 48, 56
template shift_\bits             # what is wanted begins so far up in the register
        shr     $\bits, %rax
end shift_\bits
        .endr

        .macro  load_from target, register, how, place
template load_\target\()_from_\register
        \how    \place(%rsp), %\target
end load_\target\()_from_\register
        .endm

        .irp    target, rax, rcx, rdx
        .irp    register, rbx, rbp, r8, r9, r10, r11, r12, r13, r14, r15
template load_\target\()_from_\register
        mov     %\register, %\target
end load_\target\()_from_\register
        .endr
        load_from \target, rax, mov, SAVED_RAX
        load_from \target, rcx, mov, SAVED_RCX
        load_from \target, rdx, mov, SAVED_RDX
        load_from \target, rsi, mov, SAVED_RSI
        load_from \target, rdi, mov, SAVED_RDI
        load_from \target, rsp, lea, above
        .endr

        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
template load_rax_from_xmm\number
        movq    %xmm\number, %rax
end load_rax_from_xmm\number
        .endr

# Memory: its address into rdx, then a load by size and sign.
template address
        movabs  $value, %rdx
end address

template no_base
        xor     %edx, %edx
end no_base

        .irp    scale, 1, 2, 4, 8
template add_index_\scale
        lea     (%rdx,%rcx,\scale), %rdx
end add_index_\scale
        .endr

template add_displacement
        add     $displacement, %rdx
end add_displacement

# What lies on the stack or beside the code is there: `read`. Any other pointer may be wild: `try`. A predicate loads
# only, by `memory` behind `try_memory`.
template try_memory
        call    probe
        je      unreadable
end try_memory

        .macro  reads name, load:vararg
template memory_\name
        \load
end memory_\name
template read_\name
        \load
        mov     %rax, at(%rsi)
end read_\name
template try_\name
        call    probe
        je      1f
        \load
        mov     %rax, at(%rsi)
        jmp     2f
1:      orl     $bit, MISSING(%rsi)
2:
end try_\name
        .endm

        reads   signed_1, movsbq (%rdx), %rax
        reads   signed_2, movswq (%rdx), %rax
        reads   signed_4, movslq (%rdx), %rax
        reads   signed_8, movq (%rdx), %rax
        reads   unsigned_1, movzbl (%rdx), %eax
        reads   unsigned_2, movzwl (%rdx), %eax
        reads   unsigned_4, movl (%rdx), %eax
        reads   unsigned_8, movq (%rdx), %rax

# -- predicates --------------------------------------------------------------------------------------------------------

# Most predicates compare a register with a constant, as it is: nothing needs to be saved for that. The others find the
# registers where `save_all` puts them.
        .macro  compare size, register, name
template compare_\size\()_\register
        cmp     $constant, %\name
end compare_\size\()_\register
        .endm

        .irp    letter, a, b, c, d
        compare 1, r\letter\()x, \letter\()l
        compare 2, r\letter\()x, \letter\()x
        compare 4, r\letter\()x, e\letter\()x
        compare 8, r\letter\()x, r\letter\()x
        .endr
        .irp    name, si, di, bp, sp
        compare 1, r\name, \name\()l
        compare 2, r\name, \name
        compare 4, r\name, e\name
        compare 8, r\name, r\name
        .endr
        .irp    register, r8, r9, r10, r11, r12, r13, r14, r15
        compare 1, \register, \register\()b
        compare 2, \register, \register\()w
        compare 4, \register, \register\()d
        compare 8, \register, \register
        .endr

        .irp    condition, e, ne, l, le, g, ge, b, be, a, ae
template jump_\condition
        j\condition target
end jump_\condition
        .endr

# Behind `save_all`: the operand in rax, as a number of 64 bits.
template extend_signed_1
        movsbq  %al, %rax
end extend_signed_1
template extend_signed_2
        movswq  %ax, %rax
end extend_signed_2
template extend_signed_4
        movslq  %eax, %rax
end extend_signed_4
template extend_unsigned_1
        movzbl  %al, %eax
end extend_unsigned_1
template extend_unsigned_2
        movzwl  %ax, %eax
end extend_unsigned_2
template extend_unsigned_4
        mov     %eax, %eax
end extend_unsigned_4

template compare_constant
        movabs  $constant, %rcx
        cmp     %rcx, %rax
end compare_constant

template masked
        movabs  $mask, %rcx
        and     %rcx, %rax
end masked

template keep_first             # of two operands
        mov     %rax, %rdi
end keep_first

template join_above             # two keys of four bytes: what was kept stands above
        shl     $32, %rdi
        mov     %eax, %eax
        or      %rdi, %rax
end join_above

template join_below             # or below
        mov     %edi, %edi
        shl     $32, %rax
        or      %rdi, %rax
end join_below

template compare_two
        cmp     %rax, %rdi
end compare_two

# Compare the text at rax with `size` bytes: equal if it begins with them.
template text_begins
        lea     literal(%rip), %rdi
        mov     $size, %ecx
        call    begins
        js      unreadable
end text_begins

# Its routine: the bytes are at rdi, ecx of them, of which the last may be the NUL. Negative if the text can't be read.
# Where a text goes on in a page that can't be read it ends, as in records. Changes rax, rcx, rdx, rsi, rdi.
template begins
        push    %rbx
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        mov     %rax, %rbx
        mov     %rdi, %r8
        mov     %ecx, %r9d
        test    %rbx, %rbx
        jz      4f
        known_rbx 1f
        try_rbx
        je      5f
1:      test    %r9d, %r9d
        jz      3f
2:      mov     (%rbx), %al
        cmp     (%r8), %al
        jne     4f
        inc     %rbx
        inc     %r8
        dec     %r9d
        jz      3f
        test    $0xfff, %ebx
        jnz     2b
        known_rbx 2b
        try_rbx
        jne     2b
        cmpb    $0, (%r8)
        jne     4f
3:      xor     %eax, %eax
        jmp     6f
4:      mov     $1, %eax
        jmp     6f
5:      mov     $-1, %eax
6:      pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rbx
        test    %eax, %eax
        ret
end begins

# The bits of a floating-point number in rax become a signed number of the same order, +0 and -0 the same.
template order_8
        mov     %rax, %rcx
        add     %rcx, %rcx
        jnz     1f
        xor     %eax, %eax
1:      movabs  $0xffe0000000000000, %rdx       # infinity, without its sign
        cmp     %rdx, %rcx
        ja      not_a_number
        mov     %rax, %rcx
        sar     $63, %rcx
        shr     $1, %rcx
        xor     %rcx, %rax
end order_8

template order_4
        mov     %eax, %ecx
        add     %ecx, %ecx
        jnz     1f
        xor     %eax, %eax
1:      cmp     $0xff000000, %ecx
        ja      not_a_number
        movslq  %eax, %rax
        mov     %rax, %rcx
        sar     $63, %rcx
        shr     $33, %rcx
        xor     %rcx, %rax
end order_4

# -- tables (layout in ../patch/tables.py) ------------------------------------------------------------------------------

        COUNT = 8               # in a cell; its key is at 0
        SUM = 16                # of 128 bits
        MOST = 32               # the greatest value, its sign turned round where it has one: so 0 is the least of all
        LEAST = 40              # the least, likewise, all its bits turned round
        CELL_BITS = 6
        MOST_STEPS = 256        # that a search for a key may take
        CLASSES_BITS = 13       # bytes of a cell's classes
        NEGATIVE = 4096         # where those of negative values begin

# What ends with `_own` is for this thread's shard, where nobody else writes; addresses are those in the number 0. An
# instruction is whole for a handler of a signal on this thread, and needs no lock.
        .macro  in_shard own, register
        .ifnb   \own
        add     shard(%rsp), \register
        .endif
        .endm

# Behind `save_all`: rsi = the cell that a hit is added to; of the key in rax, or of that of several words, whose words
# are at `keys` in the table; or the cell that is at rax in a table of `size` bytes, or the last.
        .macro  cells own, lock
template cell\own
        movabs  $table, %rsi
        in_shard \own, %rsi
end cell\own

template key_cell\own
        movabs  $table, %rsi
        in_shard \own, %rsi
        call    find
end key_cell\own

template wide_cell\own
        lea     KEY(%rsp), %rdi
        movabs  $table, %rsi
        movabs  $keys, %rcx
        in_shard \own, %rsi
        in_shard \own, %rcx
        mov     $stride, %edx
        call    find
end wide_cell\own

template numbered_cell\own
        mov     $last, %esi
        cmp     %rsi, %rax
        cmova   %rsi, %rax
        movabs  $table, %rsi
        in_shard \own, %rsi
        add     %rax, %rsi
end numbered_cell\own

template count_cell\own
        \lock incq COUNT(%rsi)
end count_cell\own
        .endm

        cells   , lock
        cells   _own

# A key of several words is made above what `save_all` has saved. Its first word says what it is made of.
template key_begin
        movabs  $made_of, %rax
        movq    $8, KEY(%rsp)
        mov     %rax, KEY + 8(%rsp)
end key_begin

template key_word               # the number in rax
        mov     KEY(%rsp), %rcx
        mov     %rax, KEY + 8(%rsp,%rcx)
        addq    $8, KEY(%rsp)
end key_word

template key_text               # the text at rax
        lea     KEY(%rsp), %rsi
        call    add_text
end key_text

template cell_number            # rax = where in the table the cell at rsi is
        movabs  $table, %rax
        neg     %rax
        add     %rsi, %rax
end cell_number

template step_key               # the key becomes its quotient
        movabs  $step, %rcx
        call    divide
end step_key

template number_key             # of the thread, or of the process
        call    number
end number_key

template moment
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
end moment

template tally_cell             # the value is in rax
        call    tally
end tally_cell

template class_cell
        movabs  $classes, %rdi
        call    count_class
end class_cell

template class_cell_own         # the cell's address brings the shard's place 2^7 times
        mov     shard(%rsp), %rcx
        movabs  $classes, %rdi
        add     %rcx, %rdi
        shl     $CLASSES_BITS - CELL_BITS, %rcx
        sub     %rcx, %rdi
        call    count_class
end class_cell_own

# Find the cell of the key in rax in the table at rsi: rsi = the cell. A free one has the key 0, and gets its key by an
# exchange, once for good. Behind all cells is that of the key 0, and then one for all keys that find no place. Changes
# rax, rcx, rdx, rdi.
        .macro  find bits, own, lock
template find_\bits\own
        lea     1 << (CELL_BITS + \bits)(%rsi), %rcx
        test    %rax, %rax
        jz      3f
        movabs  $0x9e3779b97f4a7c15, %rdx       # 2^64 / golden ratio: neighbours get far from each other
        imul    %rax, %rdx
        shr     $64 - \bits, %rdx
1:      mov     %edx, %ecx
        and     $(1 << \bits) - 1, %ecx
        shl     $CELL_BITS, %ecx
        add     %rsi, %rcx
        mov     (%rcx), %rdi
        cmp     %rax, %rdi
        je      3f
        test    %rdi, %rdi
        jnz     2f
        mov     %rax, %rdi
        xor     %eax, %eax
        \lock cmpxchg %rdi, (%rcx)
        je      3f
        cmp     %rdi, %rax
        je      3f
        mov     %rdi, %rax      # another key was quicker
2:      add     $0x10001, %edx  # one cell, and one step, which the upper half counts
        test    $MOST_STEPS << 16, %edx
        jz      1b
        lea     (1 << (CELL_BITS + \bits)) + (1 << CELL_BITS)(%rsi), %rcx
3:      mov     %rcx, %rsi
        ret
end find_\bits\own
        .endm

        find    12, , lock
        find    8, , lock
        find    12, _own
        find    8, _own

# Add the text at rax to the key at rsi: its length and its bytes, the rest of the last word 0; or -1 and the pointer, if
# it can't be read. Changes rax, rcx, rdx, rdi.
template add_text
        mov     %rax, %rdx
        mov     (%rsi), %rcx
        lea     8(%rsi,%rcx), %rcx
        mov     %rcx, %rdi
        push    %rdx
        call    copy
        pop     %rdx
        mov     (%rdi), %rax
        test    %rax, %rax
        js      1f
        btr     $CUT, %rax
        movq    $0, 8(%rdi,%rax)
        add     $7, %rax
        and     $-8, %rax
        jmp     2f
1:      mov     %rdx, 8(%rdi)
        mov     $8, %eax
2:      add     $8, %rax
        add     %rax, (%rsi)
        ret
end add_text

# Find the cell of the key at rdi (its bytes, then its words) in the table at rsi, of which each cell has edx bytes for the
# words of its key from rcx on: rsi = the cell. A cell's own word is a hash of them. It is odd while they are written, and
# such a cell is passed by: its thread may have been killed, or be the one that this handler of a signal runs in. So a
# key may have two cells, which the reader adds up. Changes rax, rcx, rdx, rdi.
        .macro  hash_key                # rax, of the words at rdi, which then have rbx bytes
        mov     (%rdi), %rbx
        add     $8, %rdi
        movabs  $0x9e3779b97f4a7c15, %r10
        xor     %eax, %eax
        xor     %ecx, %ecx
1:      xor     (%rdi,%rcx), %rax
        imul    %r10, %rax
        mov     %rax, %rdx
        shr     $32, %rdx
        xor     %rdx, %rax
        add     $8, %rcx
        cmp     %rbx, %rcx
        jb      1b
        imul    %r10, %rax
        .endm

        .macro  find_wide bits, own, lock
template find_wide_\bits\own
        push    %rbx
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        push    %r12
        mov     %rcx, %r8
        mov     %edx, %r9d
        hash_key
        mov     %rax, %rdx
        shr     $64 - \bits, %rdx
        and     $-2, %rax
        or      $2, %rax        # neither 0 nor odd
2:      mov     %edx, %r11d
        and     $(1 << \bits) - 1, %r11d
        mov     %r11d, %ecx
        shl     $CELL_BITS, %ecx
        add     %rsi, %rcx
        imul    %r9, %r11
        add     %r8, %r11
        mov     (%rcx), %r10
        cmp     %rax, %r10
        je      5f
        test    %r10, %r10
        jnz     4f
        lea     1(%rax), %r10
        xor     %eax, %eax
        \lock cmpxchg %r10, (%rcx)
        lea     -1(%r10), %rax
        jne     2b
        xor     %r10d, %r10d
3:      mov     (%rdi,%r10), %rdx
        mov     %rdx, (%r11,%r10)
        add     $8, %r10
        cmp     %rbx, %r10
        jb      3b
        mov     %rax, (%rcx)
        jmp     7f
5:      xor     %r10d, %r10d
6:      mov     (%rdi,%r10), %r12
        cmp     (%r11,%r10), %r12
        jne     4f
        add     $8, %r10
        cmp     %rbx, %r10
        jb      6b
        jmp     7f
4:      add     $0x10001, %edx
        test    $MOST_STEPS << 16, %edx
        jz      2b
        lea     (1 << (CELL_BITS + \bits)) + (1 << CELL_BITS)(%rsi), %rcx
7:      mov     %rcx, %rsi
        pop     %r12
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rbx
        ret
end find_wide_\bits\own
        .endm

        find_wide 12, , lock
        find_wide 8, , lock
        find_wide 12, _own
        find_wide 8, _own

template hash_words             # rax = 64 bits for the key at rdi. Changes rcx, rdx, rdi.
        push    %rbx
        push    %r10
        hash_key
        pop     %r10
        pop     %rbx
        ret
end hash_words

# Keep the greatest of rcx and what is at a place of the cell at rsi. Changes rax.
        .macro  keep_most place, lock
        mov     \place(%rsi), %rax
2:      cmp     %rcx, %rax
        jae     3f
        \lock cmpxchg %rcx, \place(%rsi)
        jne     2b
3:
        .endm

# Keep the greatest and the least value of the cell at rsi, and add the value in rax to its sum. It is counted behind that,
# in the cell or in its class: who sees the count sees the rest, and no sum has what is not between these two. Changes rcx,
# rdx.
        .macro  tally sign, own, lock, high:vararg
template tally_\sign\own
        push    %rax
        mov     %rax, %rcx
        .ifc    \sign, signed
        btc     $63, %rcx
        .endif
        keep_most MOST, \lock
        not     %rcx
        keep_most LEAST, \lock
        pop     %rax
        \high
        \lock add %rax, SUM(%rsi)
        adc     $0, %rdx
        jz      1f
        \lock add %rdx, SUM + 8(%rsi)
1:      ret
end tally_\sign\own
        .endm

        tally   signed, , lock, cqo
        tally   unsigned, , lock, xor %edx, %edx
        tally   signed, _own, , cqo
        tally   unsigned, _own, , xor %edx, %edx

# Count the value in rax in its class; rdi + 2^7 rsi is where the classes of the cell at rsi are. Classes are 8 for each
# power of two (`measures.class_of`). Changes rcx, rdx, rdi.
        .macro  count_class sign, own, lock
template count_class_\sign\own
        mov     %rax, %rdx
        .ifc    \sign, signed
        test    %rax, %rax
        jns     1f
        neg     %rdx
        add     $NEGATIVE, %rdi
1:
        .endif
        cmp     $8, %rdx
        jb      2f
        bsr     %rdx, %rcx
        sub     $3, %ecx
        shr     %cl, %rdx
        lea     (%rdx,%rcx,8), %rdx
2:      mov     %rsi, %rcx
        shl     $CLASSES_BITS - CELL_BITS, %rcx
        add     %rcx, %rdi
        \lock incq (%rdi,%rdx,8)
        ret
end count_class_\sign\own
        .endm

        count_class signed, , lock
        count_class unsigned, , lock
        count_class signed, _own
        count_class unsigned, _own

# Divide rax by rcx, and round down. Changes rdx.
template divide_signed
        cqo
        idiv    %rcx
        sar     $63, %rdx
        add     %rdx, %rax
        ret
end divide_signed

template divide_unsigned
        xor     %edx, %edx
        div     %rcx
        ret
end divide_unsigned

# Behind `claim_process`, and behind what brings the thread's number.
template own_process
        mov     %edi, %eax
        ret
end own_process

template own_thread
        mov     %edx, %eax
        ret
end own_thread

# -- pairs of hits (layout in ../patch/tables.py) ------------------------------------------------------------------------

        WITHOUT_BEGIN = 0       # counters, in front of all stacks
        TOO_DEEP = 8
        TOO_MANY = 16
        WITHOUT_KEY = 24
        REJECTED = 32           # ends without a begin that don't pass themselves
        LEFT = 40               # begins whose function was left without an end
        STACKS = 64
        STACKS_BITS = 10        # how many there are
        STACK_BITS = 11         # bytes of one: a word, 8 bytes of nothing, and begins of 24 bytes
        OWN_STACKS = STACKS + (1 << (STACKS_BITS + STACK_BITS))         # behind them, of threads with a shard
        BEGINS = 16             # of a stack; of a begin: time, key, and its number below where it was on the program's stack
        KEY_OF = 8
        NUMBER = 16
        ROOM_BITS = 6           # how many begins have room
        SEARCH = 64             # stacks that a thread may look at
        FAILED = 63             # bits of a mark, which begins keep in their time
        KEYLESS = 62
        TESTED = 61

template mark                   # rsi = what is known of a hit
        movabs  $mark, %rsi
end mark

template keyless
        bts     $KEYLESS, %rsi
end keyless

template hold_mark              # while a key of several words is made
        mov     %rsi, HELD(%rsp)
end hold_mark

template held_mark
        mov     HELD(%rsp), %rsi
end held_mark

template place_by_stack         # rcx = what is the same in all of a call
        lea     place(%rsp), %rcx
end place_by_stack

template place_by_frame
        lea     frame(%rbp), %rcx
end place_by_frame

        .macro  hit_of_pair side, own
template \side\()_of_pair\own
        .ifnb   \own
        mov     shard + 8(%rsp), %edx
        .endif
        mov     %rsi, %rdi
        movabs  $pairs, %rsi
        call    \side\()_pair\own
end \side\()_of_pair\own
        .endm

        hit_of_pair begin       # the key is in rax
        hit_of_pair begin, _own
        hit_of_pair end         # equal: no pair; else the key is in rax, and the time that it took in rdi
        hit_of_pair end, _own

template hold_key               # by which a pair's hits are told apart
        mov     %rax, HELD_KEY(%rsp)
end hold_key

template hashed_key
        lea     KEY(%rsp), %rdi
        call    hash_words
end hashed_key

        .macro  hit_of_keyed_pair side, own
template \side\()_of_keyed_pair\own
        .ifnb   \own
        mov     shard + 8(%rsp), %ecx
        .endif
        mov     HELD_KEY(%rsp), %rdx
        mov     %rsi, %rdi
        movabs  $pairs, %rsi
        call    \side\()_keyed\own
end \side\()_of_keyed_pair\own
        .endm

        hit_of_keyed_pair begin
        hit_of_keyed_pair begin, _own
        hit_of_keyed_pair end   # results as `end_of_pair`

template count_unkeyed
        movabs  $pairs, %rsi
        lock incq WITHOUT_KEY(%rsi)
end count_unkeyed

template hold_time              # while the cell is looked for
        push    %rdi
end hold_time

template held_time
        pop     %rax
end held_time

# Find the stack of this thread among those at rsi: rcx = its address, rdi = its word, which holds the thread's number
# above and how many begins wait below, rax = the number alone. Goes to `free` with one that nobody ever had, which a
# search ends at, because a word never becomes 0 again; to `none` if there is neither, with edx behind the last. Changes
# rdx, r8.
        .macro  find_stack free, none
10:     call    own_thread
        shl     $32, %rax
        movabs  $0x9e3779b97f4a7c15, %rdx
        imul    %rax, %rdx
        shr     $64 - STACKS_BITS, %rdx
11:     stack_at_edx
        mov     %rdi, %r8
        xor     %rax, %r8
        shr     $32, %r8
        jz      12f
        test    %rdi, %rdi
        jz      \free
        add     $0x10001, %edx
        test    $SEARCH << 16, %edx
        jz      11b
        jmp     \none
12:
        .endm

        .macro  stack_at_edx
        mov     %edx, %ecx
        and     $(1 << STACKS_BITS) - 1, %ecx
        shl     $STACK_BITS, %ecx
        lea     STACKS(%rsi,%rcx), %rcx
        mov     (%rcx), %rdi
        .endm

# The stack of a thread with the shard r8d, whose word says nothing but how many begins wait: rcx = its address, rdi = its
# word.
        .macro  own_stack
        mov     %r8d, %ecx
        shl     $STACK_BITS, %ecx
        lea     OWN_STACKS(%rsi,%rcx), %rcx
10:     mov     (%rcx), %rdi
        .endm

# Let the stack's word at rcx become r8, if it is rdi still; else look again: a handler of a signal has come between.
        .macro  exchange_word lock
        mov     %rdi, %rax
        \lock cmpxchg %r8, (%rcx)
        jne     10b
        .endm

# Where the begin with a number is on the stack at rcx. The youngest of those that wait take the room of older ones: whose
# number is not what it should be has lost its own.
        .macro  begin_at number, to
        mov     \number, %e\to
        and     $(1 << ROOM_BITS) - 1, %e\to
        lea     (%r\to,%r\to,2), %e\to
        lea     BEGINS(%rcx,%r\to,8), %r\to
        .endm

# Put a begin on the stack of its thread: rsi = pairs, rax = key, rdi = mark, rcx = where on the program's stack. Changes rax,
# rcx, rdx, rdi.
# It is written behind the exchange: a handler in between that takes its own begins away again leaves it room. Its number
# is written first: if so many others come in between that they need this room, the number is theirs, and stays.
        .macro  begin_pair own, lock
template begin_pair\own
        push    %r8
        push    %rdi
        push    %rax
        push    %rcx
        .ifb    \own
        find_stack 3f, 4f
        .else
        mov     %edx, %r8d
        own_stack
        .endif
        lea     1(%rdi), %r8
        exchange_word \lock
1:      mov     %edi, %edi
        begin_at %edi, dx
        pop     %rax
        shl     $32, %rax
        or      %rdi, %rax
        mov     %rax, NUMBER(%rdx)
        mov     %rdx, %rdi
        pop     KEY_OF(%rdi)
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        pop     %rdx
        or      %rdx, %rax
        mov     %rax, (%rdi)
        pop     %r8
        ret
        .ifb    \own
3:      lea     1(%rax), %r8
        exchange_word \lock
        xor     %edi, %edi
        jmp     1b
4:      movzwl  %dx, %edx       # no free one: take one of a thread that has no begin waiting
        sub     $SEARCH, %edx
2:      stack_at_edx
        test    %edi, %edi
        jz      3b
        add     $0x10001, %edx
        test    $SEARCH << 16, %edx
        jz      2b
        lock incq TOO_MANY(%rsi)
        add     $24, %rsp
        pop     %r8
        ret
        .endif
end begin_pair\own
        .endm

        begin_pair , lock
        begin_pair _own

# Take the youngest begin from the stack of this thread; registers as for `begin_pair`, and results as for `end_of_pair`.
# A begin that was tested says itself whether it passes, else the end does; likewise for the key.
        .macro  judge                   # the begin, r9 and r10
        pop     %rdi
        pop     %rax
        pop     %r8
        mov     %r9, %rdx
        bt      $TESTED, %r9
        cmovnc  %r8, %rdx
        test    %rdx, %rdx      # FAILED is its sign
        js      8f
        bt      $KEYLESS, %r9
        cmovnc  %r10, %rax
        jnc     1f
        bt      $KEYLESS, %r8
        jc      4f
1:      shl     $64 - TESTED, %r9
        shr     $64 - TESTED, %r9
        xor     %edx, %edx
        sub     %r9, %rdi
        cmovs   %rdx, %rdi
        or      $1, %edx        # not equal
        jmp     9f
4:      lock incq WITHOUT_KEY(%rsi)
        jmp     8f
        .endm

        .macro  judged                  # 6: there is no begin; 7: there is no pair
6:      mov     16(%rsp), %rdx
        not     %rdx
        shr     $TESTED, %rdx
        test    $((1 << (FAILED - TESTED)) | 1), %edx
        jz      10f             # it was tested, and failed
        lock incq WITHOUT_BEGIN(%rsi)
        jmp     7f
10:     lock incq REJECTED(%rsi)
7:      add     $24, %rsp
8:      cmp     %eax, %eax
9:      pop     %r10
        pop     %r9
        pop     %r8
        .endm

# An end at the same place of the program's stack as a begin that waits means this one, and not younger ones that were
# further down: an exception, or longjmp, has left the functions where they were. Where there is no such begin, begins and
# ends are in different functions, and it means the youngest. Where the end is, is odd if its function has no begin.
        .macro  end_pair own, lock
template end_pair\own
        push    %rcx
        push    %r8
        push    %r9
        push    %r10
        push    %rdi
        push    %rax
        .ifnb   \own
        mov     %edx, %r8d
        .endif
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        push    %rax
        .ifb    \own
        find_stack 6f, 6f
        .else
        own_stack
        .endif
        lea     -1(%rdi), %r8
        mov     %edi, %edx
        sub     $1, %edx
        jc      6f
        load_begin 5f
        js      11f
12:     exchange_word \lock
13:     judge
11:     xor     %r8d, %r8d      # how many have been left that count
14:     not     %r9
        shr     $TESTED, %r9
        test    $((1 << (FAILED - TESTED)) | 1), %r9d
        setnz   %r9b
        movzbl  %r9b, %r9d
        add     %r9d, %r8d
        sub     $1, %edx
        jc      15f
        load_begin 16f
        js      14b
        jnz     15f
        mov     %edi, %eax
        sub     %edx, %eax
        mov     %r8d, %edx
        mov     %rdi, %r8
        sub     %rax, %r8
        exchange_word \lock
        lock add %rdx, LEFT(%rsi)
        jmp     13b
16:     testb   $1, 48(%rsp)    # a function with a begin: its own was given up, because all that are kept were further down
        jz      17f
15:     lea     -1(%rdi), %r8
        lea     -1(%rdi), %edx
        load_begin 5f
        jmp     12b
17:     lea     -1(%rdi), %r8
5:      exchange_word \lock
        lock incq TOO_DEEP(%rsi)
        jmp     7f
        judged
        lea     8(%rsp), %rsp
        ret
end end_pair\own
        .endm

# The begin with the number edx: r9 = its time and mark, r10 = its key; below zero if it was further down the program's
# stack than the end, zero if it was at the same place. Goes to `lost` if it isn't there any more. Changes rax.
        .macro  load_begin lost
        begin_at %edx, ax
        mov     (%rax), %r9
        mov     KEY_OF(%rax), %r10
        mov     NUMBER(%rax), %rax
        cmp     %eax, %edx
        jne     \lost
        shr     $32, %rax
        sub     48(%rsp), %eax
        .endm

        end_pair , lock
        end_pair _own

# Do something with the shard that this thread has in the code that has begins wait, if it has one there; registers as
# for what is done.
        .macro  there what, shard
template \what\()_there
        push    %rax
        push    %rcx
        call    find_shard_there
        pop     %rcx
        jz      1f
        mov     %eax, %\shard
        pop     %rax
        jmp     own_way
1:      pop     %rax
        jmp     common_way
end \what\()_there
        .endm

        there   pair, edx
        there   keyed, ecx

# -- pairs by a key, of any two threads of a process --------------------------------------------------------------------

        BUCKETS_BITS = 8        # of 64 slots for begins each, in the place of the stacks
        SLOTS = 40              # that are used
        SLOT_BITS = 6           # bytes of a slot: none, its owner (a process), the pair's key, time, key
        MASK = STACKS + (1 << 20)
        OWNER = STACKS + 8
        SLOT_KEY = STACKS + 16
        BEGUN = STACKS + 24
        BY = STACKS + 32
        NEAR = 7                # places of a bucket that are a thread's own; the mask is in front of them
        PLACE_BITS = 5          # bytes of one: time, the pair's key, key, process, whether its thread is writing
        SINCE_WHEN = MASK
        PLACE_KEY = MASK + 8
        PLACE_BY = MASK + 16
        PLACE_PROCESS = MASK + 24
        WRITING = MASK + 28
        WAITS = 60              # bit of a place's time: the begin waits still
        IN_PLACE = 1 << 16      # added to where a place is, which makes it no number of a slot

# A key's hash says its bucket, whose mask tells which slots hold begins; who takes a bit out owns what it stands for. A
# begin takes a slot without an owner, writes, and then sets its bit; an end takes the bit of the youngest begin with its
# key, reads, and lets the slot go. A thread that is killed in between leaves a slot that nobody uses any more.
# Above the mask is how many begins there have been (24 bits). So a word that is what it was says that no slot has got
# another begin: what an end has looked at is still so. If it finds none in a word to which no begin has come meanwhile,
# there was none: each that began before has its own begin there, and takes one.
# The first slots are used most: where a bucket's are is another cache line of the page for each bucket.
#
# The threads that have got the first shards have a place in each bucket, which only they write begins to, so without a
# lock. The time is written last, with the bit `WAITS`; an end reads the place, and takes the begin by clearing the bit,
# if the time is still what it was. Only a begin makes it another one, and always a later one, so a taken begin is the
# one that was read, and times that together are what they were say that no begin has come to a place.
# A handler of a signal that comes while its thread is writing leaves the place to it, and takes a slot. Where there are
# shards, all ends look at places (`end_keyed_own`), those of threads without a shard, too.
        .macro  find_bucket own         # of the key in r8: r9 = the offset of its first slot, r11 = the process,
        call    own_process             # r12 = the offset of its mask
        mov     %eax, %r11d
        mov     %r11, %rax
        shl     $32, %rax
        xor     %r8, %rax
        movabs  $0x9e3779b97f4a7c15, %r9
        imul    %rax, %r9
        shr     $64 - BUCKETS_BITS, %r9
        mov     %r9d, %eax
        mov     %r9d, %r12d             # neither are these in the same cache line of each page
        shl     $8, %r12d
        and     $0x30, %eax
        lea     (%r12,%rax,4), %r12d
        mov     %r9d, %eax
        and     $63, %eax
        shl     $6, %r9d
        or      %eax, %r9d
        shl     $SLOT_BITS, %r9d
        .endm

        .macro  slot_of_bit bit         # edi = the offset of the slot that a bit of the bucket's mask stands for
        mov     \bit, %edi
        shl     $SLOT_BITS, %edi
        add     %r9d, %edi
        xor     %r9d, %edi
        and     $63 << SLOT_BITS, %edi
        xor     %r9d, %edi
        .endm

        .macro  place_of number         # edi = the offset of a place of the bucket
        .ifnc   \number, %edi
        mov     \number, %edi
        .endif
        shl     $PLACE_BITS, %edi
        xor     %r12d, %edi
        .endm

        .macro  count_places            # ecx = how many places have a thread, all if the shared word is nonsense
        movabs  $shards_left, %rdi
        mov     $most_shards, %ecx
        sub     (%rdi), %rcx
        mov     $NEAR, %edi
        cmp     %rdi, %rcx
        cmova   %rdi, %rcx
        .endm

        .macro  stamp                   # rax = the time, and the mark that is on the stack
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        pop     %rdx
        or      %rdx, %rax
        .endm

# As `begin_pair`, for the pair's key in rdx, and the shard in ecx.
        .macro  begin_keyed own
template begin_keyed\own
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        push    %r12
        push    %rdi
        push    %rax
        mov     %rdx, %r8
        .ifnb   \own
        mov     %ecx, %r10d
        .endif
        find_bucket \own
        .ifnb   \own
        mov     $most_shards, %edi
        sub     %r10d, %edi
        test    %r10d, %r10d
        jz      6f
        inc     %edi
        cmp     $NEAR, %edi
        ja      6f
        place_of %edi
        btsl    $0, WRITING(%rsi,%rdi)
        jc      6f
        btq     $WAITS, SINCE_WHEN(%rsi,%rdi)
        jc      5f
        mov     %r8, PLACE_KEY(%rsi,%rdi)
        mov     %r11d, PLACE_PROCESS(%rsi,%rdi)
        pop     PLACE_BY(%rsi,%rdi)
        stamp
        bts     $WAITS, %rax
        mov     %rax, SINCE_WHEN(%rsi,%rdi)
        movl    $0, WRITING(%rsi,%rdi)
        jmp     4f
5:      movl    $0, WRITING(%rsi,%rdi)
6:
        .endif
        xor     %r10d, %r10d
1:      slot_of_bit %r10d
        xor     %eax, %eax
        cmp     %rax, OWNER(%rsi,%rdi)
        jne     2f
        lock cmpxchg %r11, OWNER(%rsi,%rdi)
        je      3f
2:      inc     %r10d
        cmp     $SLOTS, %r10d
        jb      1b
        lock incq TOO_MANY(%rsi)
        pop     %rax
        pop     %rax
        jmp     4f
3:      mov     %r8, SLOT_KEY(%rsi,%rdi)
        pop     BY(%rsi,%rdi)
        stamp
        mov     %rax, BEGUN(%rsi,%rdi)
        mov     $1, %eax
        mov     %r10d, %ecx
        shl     %cl, %rax
        bts     $SLOTS, %rax
        lock add %rax, MASK(%rsi,%r12)
4:
        pop     %r12
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        ret
end begin_keyed\own
        .endm

        begin_keyed
        begin_keyed _own

# As `end_pair`, for the pair's key in rdx.
        .macro  end_keyed own
template end_keyed\own
        push    %rbx
        push    %rbp
        push    %r11
        push    %r12
        .ifnb   \own
        push    %r13
        .endif
        push    %r8
        push    %r9
        push    %r10
        push    %rdi
        push    %rax
        mov     %rdx, %r8
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        push    %rax
        find_bucket \own
10:     mov     MASK(%rsi,%r12), %rax
        xor     %r10d, %r10d    # when the youngest one began, above
        .ifnb   \own
        xor     %r13d, %r13d    # the sum of all places' times
        count_places
        inc     %ecx
16:     dec     %ecx
        jz      17f
        place_of %ecx
        mov     SINCE_WHEN(%rsi,%rdi), %rdx
        mov     %rdx, %rbx
        shl     $64 - WAITS, %rbx
        add     %rbx, %r13
        bt      $WAITS, %rdx
        jnc     16b
        cmp     %r8, PLACE_KEY(%rsi,%rdi)
        jne     16b
        cmp     %r11d, PLACE_PROCESS(%rsi,%rdi)
        jne     16b
        cmp     %r10, %rbx
        jbe     16b
        mov     %rbx, %r10
        lea     IN_PLACE(%rdi), %ebp
        jmp     16b
17:
        .endif
        mov     %rax, %rdx
        shl     $64 - SLOTS, %rdx
        shr     $64 - SLOTS, %rdx
11:     bsf     %rdx, %rcx
        jz      12f
        lea     -1(%rdx), %rdi
        and     %rdi, %rdx
        slot_of_bit %ecx
        cmp     %r8, SLOT_KEY(%rsi,%rdi)
        jne     11b
        cmp     %r11, OWNER(%rsi,%rdi)
        jne     11b
        mov     BEGUN(%rsi,%rdi), %rbx
        shl     $64 - WAITS, %rbx
        cmp     %r10, %rbx
        jbe     11b
        mov     %rbx, %r10
        mov     %ecx, %ebp
        jmp     11b
12:     test    %r10, %r10
        jz      13f
        .ifnb   \own
        cmp     $IN_PLACE, %ebp
        jae     14f
        .endif
        mov     %rax, %rdx
        btr     %rbp, %rdx
        lock cmpxchg %rdx, MASK(%rsi,%r12)
        jne     10b
        slot_of_bit %ebp
        mov     BEGUN(%rsi,%rdi), %r9
        mov     BY(%rsi,%rdi), %r10
        movq    $0, OWNER(%rsi,%rdi)
15:     judge
        .ifnb   \own
14:     mov     SINCE_WHEN - IN_PLACE(%rsi,%rbp), %rax
        mov     %rax, %rdx
        shl     $64 - WAITS, %rdx
        cmp     %rdx, %r10
        jne     10b
        mov     PLACE_BY - IN_PLACE(%rsi,%rbp), %rcx
        mov     %rax, %rdx
        btr     $WAITS, %rdx
        jnc     10b             # somebody else has taken it
        lock cmpxchg %rdx, SINCE_WHEN - IN_PLACE(%rsi,%rbp)
        jne     10b
        mov     %rdx, %r9
        mov     %rcx, %r10
        jmp     15b
        .endif
13:
        .ifnb   \own
        count_places
        inc     %ecx
18:     dec     %ecx
        jz      19f
        place_of %ecx
        mov     SINCE_WHEN(%rsi,%rdi), %rdx
        shl     $64 - WAITS, %rdx
        sub     %rdx, %r13
        jmp     18b
19:     test    %r13, %r13
        jnz     10b
        .endif
        xor     MASK(%rsi,%r12), %rax
        shr     $SLOTS, %rax
        jnz     10b
        judged
        .ifnb   \own
        pop     %r13
        .endif
        pop     %r12
        pop     %r11
        pop     %rbp
        pop     %rbx
        ret
end end_keyed\own
        .endm

        end_keyed
        end_keyed _own

# -- which calls are recorded (../../tracing/patch/calls.py) ------------------------------------------------------------

        THREADS_MASK = 511      # for so many threads, plus 1, there is memory
        LOOKS = 8               # places that a thread may have
        OPEN = 8                # of a thread: how many bytes of calls are open; its process and number are at 0
        CALL = 64               # bytes of an open call; the first is at 16
        PLACE = 16 - CALL       # of the last open call, behind OPEN: where on the stack it returns
        BACK = 24 - CALL        # to where
        WHOSE = 32 - CALL       # the function
        ROLES = 36 - CALL       # what it and those around it mean for calls within
        SINCE = 40 - CALL       # when it was entered
        NUMBER = 48 - CALL      # its target's number
        BELOW = 1
        NOT_BELOW = 2
        MIXED = 4               # it, or one around it, is on another stack than the one around that
        GIVEN = 8               # it is recorded, and so are all around it
        ROW_ROLES = 4           # of a function: what it means; whose that is at 0
        ROW_NUMBER = 8          # its target's number
        ROW_LEADERS = 12        # functions that jump to it, the last one 0
        TELLS = 0x80            # in the highest byte of the thread's number
        LATE = 0x40
        HEADER = 32             # bytes of a record before its arguments
        NEAR = 1 << 20          # bytes between two calls of one stack, at most (`frames`)

        .macro  own_numbers     # what `claim_slot_for` is told: process and thread
        movabs  pid_cell, %eax
        mov     %eax, %edi
        mov     %fs:tid_offset, %edx
        .endm

template record_chosen          # `record_begin` for a call or a return that may be passed by
        lea     row(%rip), %rsi
        call    chooser
        cmp     $1, %rsi
        je      passed_by
        jb      full
        movl    $site, SITE(%rsi)
end record_chosen

# rcx = what this thread has open. Keeps rsi, which is the function's row.
template own_calls
        mov     %fs:tid_offset, %edx
        mov     %edx, %edi
        and     $THREADS_MASK, %edx
        shl     $calls_bits, %edx
        movabs  $calls, %rcx
        movabs  pid_cell, %eax
        add     %rdx, %rcx
        cmp     %edi, (%rcx)
        jne     look
        cmp     %eax, 4(%rcx)
        jne     look
end own_calls

# At `look`: where another thread has taken the first place, or a forked child doesn't know its own number yet.
template look_for_calls
        push    %r9
        mov     %edi, %r9d
        test    %eax, %eax
        jnz     1f
        push    %rcx            # the system call changes it, and r11
        push    %r11
        mov     $getpid, %eax
        syscall
        pop     %r11
        pop     %rcx
        movabs  %eax, pid_cell
1:      mov     %eax, %edi
        shl     $32, %rdi
        or      %r9, %rdi
        mov     $LOOKS, %r9d
2:      mov     (%rcx), %rax
        cmp     %rdi, %rax
        je      4f
        test    %rax, %rax
        jnz     3f
        lock cmpxchg %rdi, (%rcx)
        je      4f
        cmp     %rdi, %rax
        je      4f
3:      add     $calls_size, %edx
        and     $calls_mask, %edx
        movabs  $calls, %rcx
        add     %rdx, %rcx
        dec     %r9d
        jnz     2b
        pop     %r9
        jmp     unknown         # there is none
4:      pop     %r9
        jmp     looked
end look_for_calls

# rdi = what is open, in bytes, whatever a forked process has written there; rdx = where on the stack this call returns.
        .macro  load_open unless
        lea     above(%rsp), %rdx
        mov     OPEN(%rcx), %edi
        and     $most_open, %edi
        jz      \unless
        .endm

# A call is entered. From here on the lowest bit of rdx says that the hit tells of ends, so that it is recorded whatever
# comes.
template entered
        load_open entered_alone
        mov     %rdx, %rax
        sub     PLACE(%rcx,%rdi), %rax
        cmp     $NEAR, %rax
        jbe     left
end entered

template close_left             # at `left`: what isn't open any more, but for who has jumped here
1:      cmp     $1, %rax
        ja      4f
        mov     %rdx, %rax
        and     $-8, %rax
        mov     (%rax), %rax
        cmp     BACK(%rcx,%rdi), %rax
        jne     4f
        push    %rsi
2:      mov     ROW_LEADERS(%rsi), %eax
        add     $4, %rsi
        test    %eax, %eax
        jz      3f
        cmp     WHOSE(%rcx,%rdi), %eax
        jne     2b
        pop     %rsi
        jmp     entered_within
3:      pop     %rsi
4:      testl   $GIVEN, ROLES(%rcx,%rdi)
        jz      5f
        or      $1, %rdx
5:      sub     $CALL, %edi
        mov     %edi, OPEN(%rcx)
        jz      entered_alone
        mov     %rdx, %rax
        sub     PLACE(%rcx,%rdi), %rax
        cmp     $NEAR, %rax
        jbe     1b
        jmp     entered_within
end close_left

template not_too_deep
        cmp     $deepest, %edi
        jae     passed_over
end not_too_deep

# Open the call, if the roles of those around it let it be recorded. It is written before it counts, and again if the
# handler of a signal has written there in between.
        .macro  allow_call
        mov     $nothing_open, %eax
        test    %edi, %edi
        cmovnz  ROLES(%rcx,%rdi), %eax
        test    $NOT_BELOW, %eax
        jnz     passed_over
        or      ROW_ROLES(%rsi), %eax
        test    $BELOW, %eax
        jz      passed_over
        cmp     $room, %edi
        jae     too_deep
        push    %r9
        test    %edi, %edi
        jz      1f
        mov     PLACE(%rcx,%rdi), %r9
        sub     %rdx, %r9
        cmp     $NEAR, %r9
        jbe     1f
        or      $MIXED, %eax
1:
        .endm
        .macro  write_call
        mov     %rdx, PLACE + CALL(%rcx,%rdi)
        mov     %eax, ROLES + CALL(%rcx,%rdi)
        mov     (%rsi), %r9d
        mov     %r9d, WHOSE + CALL(%rcx,%rdi)
        mov     (%rdx), %r9
        mov     %r9, BACK + CALL(%rcx,%rdi)
        .endm
        .macro  count_call
        lea     CALL(%rdi), %r9d
        mov     %r9d, OPEN(%rcx)
        cmp     %rdx, PLACE + CALL(%rcx,%rdi)
        .endm

template open_call
        allow_call
        or      $GIVEN, %eax
        and     $-8, %rdx
2:      write_call
        count_call
        jne     2b
        pop     %r9
end open_call

# Likewise; but it is recorded when it returns, or a call within, if that has lasted; at once only if it tells of ends.
template open_call_later
        allow_call
        push    %r8
        push    %r10
        and     $~GIVEN, %eax
        mov     %rdx, %r10
        mov     %eax, %r8d
        test    $1, %dl
        jz      2f
        or      $GIVEN, %r8d
2:      rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        mov     %r10, %rdx
        mov     %rax, %r10
        mov     %r8d, %eax
        and     $-8, %rdx
3:      write_call
        mov     %r10, SINCE + CALL(%rcx,%rdi)
        mov     ROW_NUMBER(%rsi), %r9d
        mov     %r9d, NUMBER + CALL(%rcx,%rdi)
        count_call
        jne     3b
        pop     %r10
        pop     %r8
        pop     %r9
        test    $GIVEN, %eax
        jnz     chosen
        mov     $1, %esi
        ret
end open_call_later

# At `too_deep`: all that are open are recorded before this one, which has no room.
template give_all
        push    %r9
        testl   $GIVEN, ROLES(%rcx,%rdi)
        jnz     1f
        mov     %edi, %r9d
        xor     %edx, %edx
        movabs  $1 << 63, %rsi
        call    give
        test    %r9d, %r9d
        jz      2f
1:      pop     %r9
        jmp     chosen
2:      pop     %r9
        xor     %esi, %esi
        ret
end give_all

# Record, up to r9, what is open and isn't recorded, from the outermost on, as long as it has lasted: rsi ticks, and rdx
# is now. r9 becomes 0 where there is no room. Who interrupts this finds each call as one that is recorded.
template give_calls
        push    %rdi
        xor     %edi, %edi
1:      add     $CALL, %edi
        cmp     %r9d, %edi
        ja      4f
        testl   $GIVEN, ROLES(%rcx,%rdi)
        jnz     1b
        mov     %rdx, %rax
        sub     SINCE(%rcx,%rdi), %rax
        cmp     %rsi, %rax
        jl      4f
        orl     $GIVEN, ROLES(%rcx,%rdi)
        push    %rcx
        push    %rdx
        push    %rsi
        push    %rdi
        own_numbers
        call    claim_slot_for
        test    %rsi, %rsi
        jz      2f
        mov     24(%rsp), %rcx
        add     (%rsp), %rcx
        mov     SINCE(%rcx), %rax
        mov     %rax, TIME(%rsi)
        mov     NUMBER(%rcx), %eax
        mov     %eax, SITE(%rsi)
        orb     $LATE, THREAD + 3(%rsi)
        mov     PLACE(%rcx), %rax
        mov     %rax, HEADER(%rsi)
        mov     BACK(%rcx), %rax
        mov     %rax, HEADER + 8(%rsi)
        mov     %rdi, (%rsi)
        jmp     3f
2:      xor     %r9d, %r9d
3:      pop     %rdi
        pop     %rsi
        pop     %rdx
        pop     %rcx
        jmp     1b
4:      pop     %rdi
        ret
end give_calls

template unknown_thread         # a call is entered, and what is open nobody knows: it may tell of ends
        mov     $1, %edx
end unknown_thread

template is_waiting             # whether calls that are entered are passed by until a probe is hit
        movabs  switch, %eax
        cmp     $waits, %eax
        je      passed_over
end is_waiting

template switched               # such a probe is hit, or one that ends it
        mov     (%rsi), %eax
        movabs  %eax, switch
        mov     $1, %esi
        ret
end switched

# A call returns, and is closed if it is open, with what was left within it. If it isn't, only what was left is; where
# as many are open as there is room for, those that had none were recorded.
template returned
        load_open passed_over
        mov     PLACE(%rcx,%rdi), %rax
        sub     %rdx, %rax
        je      ended
        jb      1f
        testl   $MIXED, ROLES(%rcx,%rdi)
        jz      4f
1:      mov     %rdi, %rax
2:      cmp     %rdx, PLACE(%rcx,%rax)
        jne     3f
        push    %rdx
        mov     (%rsi), %edx
        cmp     %edx, WHOSE(%rcx,%rax)
        pop     %rdx
        cmove   %rax, %rdi
        je      ended
3:      sub     $CALL, %rax
        jnz     2b
        mov     %rdx, %rax
7:      sub     PLACE(%rcx,%rdi), %rax
        cmp     $NEAR, %rax
        ja      4f
        testl   $GIVEN, ROLES(%rcx,%rdi)
        jz      8f
        or      $1, %rdx
8:      mov     %rdx, %rax
        sub     $CALL, %edi
        mov     %edi, OPEN(%rcx)
        jnz     7b
4:      cmp     $room, %edi
        jb      passed_over
        jmp     chosen
end returned

template close_ended            # at `ended`: those too that have jumped there
1:      sub     $CALL, %edi
        jz      2f
        cmp     %rdx, PLACE(%rcx,%rdi)
        je      1b
2:      mov     %edi, OPEN(%rcx)
        jmp     chosen
end close_ended

template close_ended_later      # likewise; recorded is what has lasted, with all around it
        push    %r8
        push    %r9
        mov     %edi, %r9d
        mov     %edi, %r8d
1:      sub     $CALL, %r8d
        jz      2f
        cmp     %rdx, PLACE(%rcx,%r8)
        je      1b
2:      rdtsc
        shl     $32, %rdx
        or      %rax, %rdx
        movabs  $least, %rsi
        testl   $GIVEN, ROLES + CALL(%rcx,%r8)
        jnz     3f
        mov     %rdx, %rax
        sub     SINCE + CALL(%rcx,%r8), %rax
        cmp     %rsi, %rax
        jl      4f
3:      call    give
        mov     %r8d, OPEN(%rcx)
        test    %r9d, %r9d
        pop     %r9
        pop     %r8
        jnz     chosen
        xor     %esi, %esi      # none is recorded of what was around it, so it isn't
        ret
4:      mov     %r8d, OPEN(%rcx)
        pop     %r9
        pop     %r8
        mov     $1, %esi
        ret
end close_ended_later

template is_passed_over         # at `passed_over`: rsi = 1, if it doesn't tell of ends
        test    $1, %dl
        jnz     tells
        mov     $1, %esi
        ret
end is_passed_over

template only_tells             # at `tells`: a record that tells of ends, and of no call
        call    chosen
        test    %rsi, %rsi
        jz      1f
        orb     $TELLS, THREAD + 3(%rsi)
1:      ret
end only_tells

template is_chosen              # at `chosen`: as `claim`, behind the numbers of process and thread
        own_numbers
        jmp     claim_slot_for
end is_chosen

# -- a thread of the program that works for us (Kernel in ../host.py) ----------------------------------------------------

# r12: table, r13: how many, r14: results, r15: the word that says that all is done, rbx: the way back, ebp: the file.
# Flags stay what they are, because the way back has none to load.
template call_loop
1:      mov     %r13, %rcx
        jrcxz   2f
        mov     (%r12), %rax
        mov     8(%r12), %rdi
        mov     16(%r12), %rsi
        mov     24(%r12), %rdx
        mov     32(%r12), %r10
        mov     40(%r12), %r8
        mov     48(%r12), %r9
        syscall
        mov     %rax, (%r14)
        lea     56(%r12), %r12
        lea     8(%r14), %r14
        lea     -1(%r13), %r13
        jmp     1b
2:      movq    $1, (%r15)
        mov     $flock, %eax
        mov     %ebp, %edi
        mov     $2, %esi        # LOCK_EX
        syscall
        jmp     *%rbx
end call_loop

# A system call, and behind it the way back (WayBack in ../host.py). Nothing of it touches flags or the stack.
        .balign 16, 0xcc        # so that the data, too, is at a multiple of 16
template way_back
        syscall
way_back.begins:
        mov     way_back.file(%rip), %edi
        mov     $close, %eax
        syscall
        lea     way_back.mask(%rip), %rsi
        mov     $rt_sigprocmask, %eax
        mov     $2, %edi        # SIG_SETMASK
        mov     $0, %edx
        mov     $8, %r10d
        syscall
        offset = 0
        .irp    register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
        mov     way_back.values + offset(%rip), %\register
        offset = offset + 8
        .endr
        jmp     *way_back.values + offset(%rip)
way_back.code_ends:
        .balign 16, 0xcc
way_back.name:
        .zero   16
way_back.file:
        .zero   8
way_back.mask:
        .zero   8
way_back.values:
        .zero   16 * 8
end way_back

# -- functions of our own process, by the C calling convention (Host in ../host.py) ------------------------------------

template ticks
        rdtsc
        shl     $32, %rdx
        or      %rdx, %rax
        ret
end ticks

template skip
        mov     %rsi, %rax
        lock cmpxchg %rdx, (%rdi)
        jne     1f
        mov     %rdx, (%rcx)
1:      sete    %al
        movzbl  %al, %eax
        ret
end skip
