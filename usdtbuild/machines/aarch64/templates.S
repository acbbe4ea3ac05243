# The machine code that usdtbuild puts into traced aarch64 programs, and into its own process, as templates; see
# ../x86_64/templates.S, which says how templates are written, and tracing/patch/code_aarch64.py, which puts these
# together.

        .arch   armv8.5-a+memtag
        .macro  template name
        .globl  \name
\name:
        .endm
        .macro  end name
        .size   \name, . - \name
        .endm

        CUT = 62
        RINGS_BITS = 4           // as on x86-64
        RING_HEADER = 4096
        HEAD = 0
        TAIL = 64
        READY = 72
        GONE = 80
        WAITED = 88
        TIME = 8
        THREAD = 16
        SITE = 20
        PROCESS = 24
        MISSING = 28
        TRIES = 64
        FRAME = 96           // of a record's trampoline: x0 to x9, x30, the flags
        SAVED_X30 = 80
        KEY_ROOM = 288
        HELD = FRAME + 272
        HELD_KEY = FRAME + 280
        NO_HOW = 99
        EFAULT = 14
        SIGURG = 23

# -- numbers -----------------------------------------------------------------------------------------------------------

        .macro  number_64 register, name
        movz    \register, #:abs_g3:\name
        movk    \register, #:abs_g2_nc:\name
        movk    \register, #:abs_g1_nc:\name
        movk    \register, #:abs_g0_nc:\name
        .endm

        .macro  number_32 register, name
        movz    \register, #:abs_g1:\name
        movk    \register, #:abs_g0_nc:\name
        .endm

        .macro  call_kernel name
        movz    x8, #:abs_g0:\name
        svc     #0
        .endm

# -- going on ----------------------------------------------------------------------------------------------------------

template jump
        b       target
end jump

template return
        ret
end return

# -- counting ----------------------------------------------------------------------------------------------------------

        .macro  count_atomic place, number, status
        mov     \number, #1
        stadd   \number, [\place]
        .endm

        .macro  count_exclusive place, number, status
1:      ldxr    \number, [\place]
        add     \number, \number, #1
        stxr    \status, \number, [\place]
        cbnz    \status, 1b
        .endm

        .macro  count_trampoline way
template count_\way
        stp     x16, x17, [sp, #-32]!
        str     x15, [sp, #16]
        adrp    x16, counter
        add     x16, x16, :lo12:counter
        count_\way x16, x17, w15
        ldr     x15, [sp, #16]
        ldp     x16, x17, [sp], #32
end count_\way
        .endm

        count_trampoline atomic
        count_trampoline exclusive

template tell
        stp     x0, x1, [sp, #-64]!
        stp     x2, x3, [sp, #16]
        str     x8, [sp, #32]
        mrs     x8, nzcv
        str     x8, [sp, #40]
        mov     x0, #0
        mov     x1, #0
        add     x2, sp, #48
        mov     x3, #8
        call_kernel rt_sigprocmask
        ldr     x0, [sp, #48]
        tbnz    x0, #SIGURG - 1, 1f
        call_kernel getpid
        mov     x3, x0
        call_kernel gettid
        mov     x1, x0
        mov     x0, x3
        mov     x2, #SIGURG
        call_kernel tgkill
tell.told:
        b       2f
1:      mov     x0, #1
        adrp    x1, flag
        add     x1, x1, :lo12:flag
        str     w0, [x1]
tell.on:
2:      ldr     x8, [sp, #40]
        msr     nzcv, x8
        ldr     x8, [sp, #32]
        ldp     x2, x3, [sp, #16]
        ldp     x0, x1, [sp], #64
end tell

# -- routines ----------------------------------------------------------------------------------------------------------

# Claim a slot: x6 = its address, or 0; x7 = the sequence to store last. Changes x0 to x5, x8.
# One of `thread_at_offset` and `thread_by_call` stands between the parts, and brings the thread's number in x3; one of
# `claim_atomic` and `claim_exclusive` takes the slot.
template claim_process
        number_64 x4, pid_cell
        ldr     w5, [x4]
        cbnz    x5, 1f
        call_kernel getpid
        mov     x5, x0
        str     w5, [x4]
1:
end claim_process

template thread_at_offset
        mrs     x0, tpidr_el0
        number_64 x1, tid_offset
        add     x0, x0, x1
        ldr     w3, [x0]
end thread_at_offset

template thread_by_call
        call_kernel gettid
        mov     x3, x0
end thread_by_call

        .macro  claim way
template claim_slot_\way
        ubfx    x4, x3, #0, #RINGS_BITS
        movz    x2, #:abs_g0:stride_bits
        lsl     x4, x4, x2
        number_64 x2, rings
        add     x4, x4, x2
        number_32 x8, slots
1:      ldr     x0, [x4, #HEAD]
        ldr     x2, [x4, #TAIL]
        sub     x2, x0, x2
        cmp     x2, x8
        b.ge    full
        number_32 x2, slots_mask
        and     x6, x0, x2
        ldr     x2, [x4, #READY]
        cmp     x6, x2
        b.ge    full
        add     x7, x0, #1
        swap_\way 1b
        number_32 x2, slot_size
        madd    x6, x6, x2, x4
        add     x6, x6, #RING_HEADER
        str     w3, [x6, #THREAD]
        str     x5, [x6, #PROCESS]      // and nothing missing
        mrs     x0, cntvct_el0
        str     x0, [x6, #TIME]
        ret
end claim_slot_\way
        .endm

        .macro  waited_atomic
        stadd   x0, [x1]
        .endm

        .macro  waited_exclusive
2:      ldxr    x2, [x1]
        add     x2, x2, x0
        stxr    w3, x2, [x1]
        cbnz    w3, 2b
        .endm

        .macro  wait_for_room way       // see x86_64.S
template wait_for_room_\way
        ldr     x0, [x4, #READY]
        cbz     x0, none
        ldr     w0, [x4, #GONE]
        cbnz    w0, none
        mov     x9, x3
        ldr     x6, [x4, #TAIL]
        mrs     x7, cntvct_el0
        movz    x0, #1000000 & 0xffff   // nanoseconds
        movk    x0, #1000000 >> 16, lsl #16
        stp     xzr, x0, [sp, #-16]!
1:      add     x0, x4, #TAIL
        mov     x1, #0                  // FUTEX_WAIT
        mov     w2, w6
        mov     x3, sp
        call_kernel futex
        mrs     x0, cntvct_el0
        sub     x0, x0, x7
        ldr     x1, [x4, #TAIL]
        cmp     x1, x6
        b.ne    3f
        number_64 x1, patience
        cmp     x0, x1
        b.lt    1b
        mov     w1, #1
        str     w1, [x4, #GONE]
3:      add     x1, x4, #WAITED
        waited_\way
        add     sp, sp, #16
        mov     x3, x9
        ldr     w0, [x4, #GONE]
        cbz     w0, again
end wait_for_room_\way
        .endm

template no_room
        mov     x6, #0
        ret
end no_room

        .macro  swap_atomic again
        mov     x2, x0
        casal   x2, x7, [x4]
        cmp     x2, x0
        b.ne    \again
        .endm

        .macro  swap_exclusive again
        ldaxr   x2, [x4]
        cmp     x2, x0
        b.ne    \again
        stlxr   w2, x7, [x4]
        cbnz    w2, \again
        .endm

        claim   atomic
        claim   exclusive
        wait_for_room atomic
        wait_for_room exclusive

# See `claim_kept` in x86_64.S. What a record consists of is written behind the word that says that it isn't complete.
        .macro  next_atomic
        mov     x0, #1
        ldadd   x0, x7, [x4]
        .endm

        .macro  next_exclusive
3:      ldxr    x7, [x4]
        add     x0, x7, #1
        stxr    w2, x0, [x4]
        cbnz    w2, 3b
        .endm

        .macro  mark_atomic again
        mov     x2, x0
        cas     x2, x8, [x6]
        cmp     x2, x0
        b.ne    \again
        .endm

        .macro  mark_exclusive again
        ldxr    x2, [x6]
        cmp     x2, x0
        b.ne    \again
        stxr    w2, x8, [x6]
        cbnz    w2, \again
        .endm

        .macro  claim_kept way
template claim_kept_\way
        ubfx    x4, x3, #0, #RINGS_BITS
        movz    x2, #:abs_g0:stride_bits
        lsl     x4, x4, x2
        number_64 x2, rings
        add     x4, x4, x2
        mov     x9, #TRIES
1:      subs    x9, x9, #1
        b.lo    2f
        next_\way
        number_32 x2, slots_mask
        and     x6, x7, x2
        number_32 x2, slot_size
        madd    x6, x6, x2, x4
        add     x6, x6, #RING_HEADER
        add     x7, x7, #1
        mvn     x8, x7
        ldr     x0, [x6]
        cmp     x0, x7
        b.hs    1b
        mark_\way 1b
        dmb     ishst
        str     w3, [x6, #THREAD]
        str     x5, [x6, #PROCESS]      // and nothing missing
        mrs     x0, cntvct_el0
        str     x0, [x6, #TIME]
        ret
2:      mov     x6, #0
        ret
end claim_kept_\way
        .endm

        claim_kept atomic
        claim_kept exclusive

# Go to a label if the 8 aligned bytes at x1 can't be read. Changes x0, x2, x3, x8.
        .macro  try_x1 failed
        cbz     x1, \failed             // NULL means something else to the system call
        mov     x0, #NO_HOW
        mov     x2, #0
        mov     x3, #8
        call_kernel rt_sigprocmask
        cmn     x0, #EFAULT
        b.eq    \failed
        .endm

# Go to a label if what is at x4 is known to be readable, as on x86-64. Changes x0, x2.
        .macro  known_x4 known
        mov     x0, sp
        eor     x0, x0, x4
        lsr     x0, x0, #12
        cbz     x0, \known
        number_64 x0, known_from
        sub     x0, x4, x0
        number_32 x2, known_size
        cmp     x0, x2
        b.lo    \known
        number_64 x0, heap
        cmp     x4, x0
        b.lo    9f
        number_64 x0, heap_end
        ldr     x0, [x0]
        cmp     x4, x0
        b.lo    \known
9:
        .endm

# Copy the string at x4 to 8(x5), its length to (x5): -1 if it can't be read, with the bit CUT if it goes on where
# nothing can be. Changes x0 to x4, x8, x9.
# Each page is tried once, where the string enters it. Behind a string the memory may be another's, with another tag:
# then tags are not checked while bytes are read (`before` and `after`).
        .macro  copy_string name, before, after
template \name
        mov     x9, #0
        sub     x0, x9, #1
        str     x0, [x5]
1:      known_x4 7f
        and     x1, x4, #-8
        try_x1  3f
7:      \before
        number_32 x8, string_size
2:      ldrb    w0, [x4], #1
        add     x1, x5, x9
        strb    w0, [x1, #8]
        cbz     x0, 4f
        add     x9, x9, #1
        cmp     x9, x8
        b.eq    4f
        tst     x4, #0xfff
        b.ne    2b
        \after
        b       1b
3:      cbz     x9, 6f                  // at the first byte: the -1 stays; later: what is there is kept
        orr     x9, x9, #1 << CUT
        b       5f
4:      \after
5:      str     x9, [x5]
6:      ret
end \name
        .endm

        .macro  tags_off
        mrs     x3, tco
        msr     tco, #1
        .endm
        .macro  tags_back
        msr     tco, x3
        .endm

        copy_string copy
        copy_string copy_tagged, tags_off, tags_back

# Copy the stack from x4 on to 8(x5), at most x8 bytes, as on x86-64, eight at a time: the stack pointer is a multiple of
# 16. Changes x0 to x4, x8, x9.
        .macro  copy_stack_of name, before, after
template \name
        mov     x9, x8
        str     xzr, [x5]
        mov     x0, sp
        eor     x0, x0, x4
        lsr     x0, x0, #12
        cbz     x0, 2f
1:      mov     x1, x4
        try_x1  6f
2:      \before
        neg     x0, x4
        ands    x0, x0, #0xfff          // bytes up to the end of the page
        b.ne    3f
        mov     x0, #0x1000
3:      cmp     x0, x9
        csel    x0, x0, x9, lo
        sub     x9, x9, x0
        ldr     x1, [x5]
        add     x2, x5, x1
        add     x1, x1, x0
        str     x1, [x5]
4:      ldr     x1, [x4], #8
        str     x1, [x2, #8]
        add     x2, x2, #8
        subs    x0, x0, #8
        b.hi    4b
        \after
        cbnz    x9, 1b
6:      ret
end \name
        .endm

        copy_stack_of copy_stack
        copy_stack_of copy_stack_tagged, tags_off, tags_back

# Try whether the 8 bytes at x4 can be read: x0 = 0 if not. Changes x0 to x3, x8.
template probe
        and     x1, x4, #-8
        try_x1  1f
        add     x1, x4, #7              // where the last byte lies
        and     x1, x1, #-8
        try_x1  1f
        mov     x0, #1
        ret
1:      mov     x0, #0
        ret
end probe

# -- records -----------------------------------------------------------------------------------------------------------

# x6 is the slot, x7 the sequence to store last; x0 to x5, x8 and x9 are free.
template save_all
        stp     x0, x1, [sp, #-FRAME]!
        stp     x2, x3, [sp, #16]
        stp     x4, x5, [sp, #32]
        stp     x6, x7, [sp, #48]
        stp     x8, x9, [sp, #64]
        mrs     x0, nzcv
        stp     x30, x0, [sp, #SAVED_X30]
end save_all

template make_room              // before `save_all`, for a key of several words
        sub     sp, sp, #KEY_ROOM
end make_room

template give_room              // behind `restore_all`
        add     sp, sp, #KEY_ROOM
end give_room

template record_begin           // behind `save_all`
        bl      claim
        cbz     x6, full
        number_32 x0, site
        str     w0, [x6, #SITE]
end record_begin

template record_end
        stlr    x7, [x6]
end record_end

template unless_stopped         // behind `save_all`; see x86_64.S
        number_64 x0, stop
        ldr     x0, [x0]
        cbnz    x0, over
end unless_stopped

        .macro  complete
        ldr     x0, [x6]
        mvn     x0, x0
        stlr    x0, [x6]
        .endm

template record_end_kept
        complete
end record_end_kept

template record_end_stopping
        ldr     x5, [x6, #TIME]
        complete
        number_64 x4, stop
        str     x5, [x4]
end record_end_stopping

template restore_all
        ldp     x30, x0, [sp, #SAVED_X30]
        msr     nzcv, x0
        ldp     x2, x3, [sp, #16]
        ldp     x4, x5, [sp, #32]
        ldp     x6, x7, [sp, #48]
        ldp     x8, x9, [sp, #64]
        ldp     x0, x1, [sp], #FRAME
end restore_all

        .macro  record_lost way
template record_lost_\way
        adrp    x4, counter
        add     x4, x4, :lo12:counter
        count_\way x4, x5, w3
        b       out
end record_lost_\way
        .endm

        record_lost atomic
        record_lost exclusive

template store                          // the argument in x0
        str     x0, [x6, #:lo12:at]
end store

template constant
        number_64 x0, value
end constant

        .macro  set_missing
        ldr     w0, [x6, #MISSING]
        number_32 x1, bit
        orr     w0, w0, w1
        str     w0, [x6, #MISSING]
        .endm

template missing                        // the argument can't be had: its bit says so
        set_missing
end missing

template string                         // what was stored last points to a text
        ldr     x4, [x6, #:lo12:at]
        number_32 x5, string_at
        add     x5, x5, x6
        bl      copy
end string

template stack                          // what was stored last is the stack pointer
        ldr     x4, [x6, #:lo12:at]
        number_32 x5, string_at
        add     x5, x5, x6
        number_32 x8, size
        bl      copy_stack
end stack

        .irp    target, x0, x4
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
template load_\target\()_from_x\number
        ldr     \target, [sp, #8 * \number]
end load_\target\()_from_x\number
        .endr
        .irp    number, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
template load_\target\()_from_x\number
        mov     \target, x\number
end load_\target\()_from_x\number
        .endr
template load_\target\()_from_x30
        ldr     \target, [sp, #SAVED_X30]
end load_\target\()_from_x30
template load_\target\()_from_sp
        add     \target, sp, #:lo12:above
end load_\target\()_from_sp
        .endr

template zero
        mov     x0, xzr
end zero

        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
template load_x0_from_v\number
        fmov    x0, d\number
end load_x0_from_v\number
        .endr
        .irp    number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
template load_x0_from_v\number
        fmov    x0, d\number
end load_x0_from_v\number
        .endr

        .irp    bits, 8, 16, 24, 32, 40, 48, 56
template shift_\bits                     // what is wanted begins so far up in the register
        lsr     x0, x0, #\bits
end shift_\bits
        .endr

template add_displacement
        number_64 x0, displacement
        add     x4, x4, x0
end add_displacement

# Memory at x4. What lies on the stack is there: `read`. Any other pointer may be wild: `try`. A predicate loads only, by
# `memory` behind `try_memory`.
template try_memory
        bl      probe
        cbz     x0, unreadable
end try_memory

        .macro  reads name, load:vararg
template memory_\name
        \load
end memory_\name
template read_\name
        \load
        str     x0, [x6, #:lo12:at]
end read_\name
template try_\name
        bl      probe
        cbz     x0, 1f
        \load
        str     x0, [x6, #:lo12:at]
        b       2f
1:      set_missing
2:
end try_\name
        .endm

        reads   signed_1, ldrsb x0, [x4]
        reads   signed_2, ldrsh x0, [x4]
        reads   signed_4, ldrsw x0, [x4]
        reads   signed_8, ldr x0, [x4]
        reads   unsigned_1, ldrb w0, [x4]
        reads   unsigned_2, ldrh w0, [x4]
        reads   unsigned_4, ldr w0, [x4]
        reads   unsigned_8, ldr x0, [x4]

# -- predicates --------------------------------------------------------------------------------------------------------

# Behind `save_all`: the operand in x0, as a number of 64 bits.
template extend_signed_1
        sxtb    x0, w0
end extend_signed_1
template extend_signed_2
        sxth    x0, w0
end extend_signed_2
template extend_signed_4
        sxtw    x0, w0
end extend_signed_4
template extend_unsigned_1
        uxtb    w0, w0
end extend_unsigned_1
template extend_unsigned_2
        uxth    w0, w0
end extend_unsigned_2
template extend_unsigned_4
        mov     w0, w0
end extend_unsigned_4

template compare_constant
        number_64 x1, constant
        cmp     x0, x1
end compare_constant

template masked
        number_64 x1, mask
        and     x0, x0, x1
end masked

template keep_first             // of two operands
        mov     x9, x0
end keep_first

template join_above             // two keys of four bytes: what was kept stands above
        mov     w0, w0
        orr     x0, x0, x9, lsl #32
end join_above

template join_below             // or below
        mov     w9, w9
        orr     x0, x9, x0, lsl #32
end join_below

template compare_two
        cmp     x9, x0
end compare_two

# Texts and floating-point numbers as on x86-64.
template text_begins            // of the text at x0
        adrp    x5, literal
        add     x5, x5, :lo12:literal
        number_32 x6, size
        bl      begins
        b.mi    unreadable
end text_begins

# The bytes are at x5, x6 of them. Changes x0 to x6, x8.
template begins
        mov     x4, x0
        cbz     x4, 4f
        known_x4 1f
        and     x1, x4, #-8
        try_x1  5f
1:      cbz     x6, 3f
2:      ldrb    w0, [x4], #1
        ldrb    w1, [x5], #1
        cmp     w0, w1
        b.ne    4f
        sub     x6, x6, #1
        cbz     x6, 3f
        tst     x4, #0xfff
        b.ne    2b
        known_x4 2b
        and     x1, x4, #-8
        try_x1  6f
        b       2b
6:      ldrb    w0, [x5]
        cbnz    w0, 4f
3:      mov     w0, #0
        b       7f
4:      mov     w0, #1
        b       7f
5:      mov     w0, #-1
7:      cmp     w0, #0
        ret
end begins

template order_8
        lsl     x1, x0, #1
        cbnz    x1, 1f
        mov     x0, #0
1:      movz    x2, #0xffe0, lsl #48
        cmp     x1, x2
        b.hi    not_a_number
        asr     x1, x0, #63
        eor     x0, x0, x1, lsr #1
end order_8

template order_4
        lsl     w1, w0, #1
        cbnz    w1, 1f
        mov     w0, #0
1:      movz    w2, #0xff00, lsl #16
        cmp     w1, w2
        b.hi    not_a_number
        sxtw    x0, w0
        asr     x1, x0, #63
        eor     x0, x0, x1, lsr #33
end order_4

        .irp    condition, eq, ne, lt, le, gt, ge, lo, ls, hi, hs
template jump_\condition
        b.\condition target
end jump_\condition
        .endr

# -- tables (see x86_64.S) ---------------------------------------------------------------------------------------------

        COUNT = 8
        SUM = 16
        MOST = 32
        LEAST = 40
        CELL_BITS = 6
        MOST_STEPS = 256
        MOST_STEPS_UNIT = 16    // of 4096: steps are counted from bit 16 on
        CLASSES_BITS = 13
        NEGATIVE = 4096

# Behind `save_all`: x6 = the cell that a hit is added to.
template cell
        number_64 x6, table
end cell

template key_cell               // of the key in x0
        number_64 x1, table
        bl      find
end key_cell

template key_begin
        number_64 x1, made_of
        mov     x0, #8
        stp     x0, x1, [sp, #FRAME]
end key_begin

template key_word               // the number in x0
        ldr     x1, [sp, #FRAME]
        add     x2, sp, x1
        str     x0, [x2, #FRAME + 8]
        add     x1, x1, #8
        str     x1, [sp, #FRAME]
end key_word

template key_text               // the text at x0
        add     x7, sp, #FRAME
        bl      add_text
end key_text

template wide_cell
        add     x4, sp, #FRAME
        number_64 x1, table
        number_64 x2, keys
        number_32 x3, stride
        bl      find
end wide_cell

template cell_number            // x0 = where in the table the cell at x6 is
        number_64 x0, table
        sub     x0, x6, x0
end cell_number

template numbered_cell          // x6 = the cell that is there, or the last
        number_32 x2, last
        cmp     x0, x2
        csel    x0, x0, x2, ls
        number_64 x6, table
        add     x6, x6, x0
end numbered_cell

template step_key               // the key becomes its quotient
        number_64 x1, step
        bl      divide
end step_key

template number_key             // of the thread, or of the process
        bl      number
end number_key

template moment
        mrs     x0, cntvct_el0
end moment

template count_cell
        bl      count_in_cell
end count_cell

template tally_cell             // the value is in x0
        bl      tally
end tally_cell

template class_cell
        number_64 x7, classes
        bl      count_class
end class_cell

        .macro  take_atomic taken, again
        mov     x5, #0
        casal   x5, x0, [x4]
        cbz     x5, \taken
        b       \again
        .endm

        .macro  take_exclusive taken, again
        ldaxr   x5, [x4]
        cbnz    x5, \again
        stlxr   w8, x0, [x4]
        cbz     w8, \taken
        b       \again
        .endm

# Find the cell of the key in x0 in the table at x1: x6 = the cell. Changes x1 to x5, x8.
        .macro  find bits, way
template find_\bits\()_\way
        add     x6, x1, #1 << (CELL_BITS + \bits)
        cbz     x0, 5f
        movz    x2, #0x9e37, lsl #48
        movk    x2, #0x79b9, lsl #32
        movk    x2, #0x7f4a, lsl #16
        movk    x2, #0x7c15
        mul     x2, x2, x0
        lsr     x2, x2, #64 - \bits
        mov     w3, #MOST_STEPS
2:      and     x4, x2, #(1 << \bits) - 1
        add     x4, x1, x4, lsl #CELL_BITS
3:      ldr     x5, [x4]
        cmp     x5, x0
        b.eq    6f
        cbnz    x5, 4f
        take_\way 6f, 3b
4:      add     x2, x2, #1
        subs    w3, w3, #1
        b.ne    2b
        add     x6, x6, #1 << CELL_BITS
5:      ret
6:      mov     x6, x4
        ret
end find_\bits\()_\way
        .endm

# Add the text at x0 to the key at x7. Changes x0 to x6, x8, x9.
template add_text
        str     x30, [sp, #-16]!
        mov     x4, x0
        mov     x6, x0
        ldr     x1, [x7]
        add     x5, x7, x1
        add     x5, x5, #8
        bl      copy
        ldr     x0, [x5]
        tbnz    x0, #63, 1f
        and     x0, x0, #~(1 << CUT)
        add     x1, x5, x0
        str     xzr, [x1, #8]
        add     x0, x0, #7
        and     x0, x0, #-8
        b       2f
1:      str     x6, [x5, #8]
        mov     x0, #8
2:      add     x0, x0, #8
        ldr     x1, [x7]
        add     x1, x1, x0
        str     x1, [x7]
        ldr     x30, [sp], #16
        ret
end add_text

        .macro  take_wide_atomic again
        mov     x9, #0
        casal   x9, x10, [x6]
        cbnz    x9, \again
        .endm

        .macro  take_wide_exclusive again
        ldaxr   x9, [x6]
        cbnz    x9, \again
        stlxr   w9, x10, [x6]
        cbnz    w9, \again
        .endm

# Find the cell of the key at x4 in the table at x1, of which each cell has x3 bytes for the words of its key from x2 on:
# x6 = the cell. Changes x0 to x5, x7 to x9.
        .macro  golden register
        movz    \register, #0x9e37, lsl #48
        movk    \register, #0x79b9, lsl #32
        movk    \register, #0x7f4a, lsl #16
        movk    \register, #0x7c15
        .endm

        .macro  hash_key                // x0, of the words at x4, which then have x5 bytes
        ldr     x5, [x4], #8
        golden  x8
        mov     x0, #0
        mov     x7, #0
1:      ldr     x9, [x4, x7]
        eor     x0, x0, x9
        mul     x0, x0, x8
        eor     x0, x0, x0, lsr #32
        add     x7, x7, #8
        cmp     x7, x5
        b.lo    1b
        mul     x0, x0, x8
        .endm

template hash_words             // x0 = 64 bits for the key at x4. Changes x4, x5, x7 to x9.
        hash_key
        ret
end hash_words

        .macro  find_wide bits, way
template find_wide_\bits\()_\way
        stp     x30, x10, [sp, #-16]!
        hash_key
        lsr     x7, x0, #64 - \bits
        and     x0, x0, #-2
        orr     x0, x0, #2              // neither 0 nor odd
2:      and     x8, x7, #(1 << \bits) - 1
        add     x6, x1, x8, lsl #CELL_BITS
        madd    x8, x8, x3, x2
        ldar    x9, [x6]
        cmp     x9, x0
        b.eq    5f
        cbnz    x9, 4f
        add     x10, x0, #1
        take_wide_\way 2b
        mov     x9, #0
3:      ldr     x10, [x4, x9]
        str     x10, [x8, x9]
        add     x9, x9, #8
        cmp     x9, x5
        b.lo    3b
        stlr    x0, [x6]
        b       7f
5:      mov     x9, #0
6:      ldr     x10, [x4, x9]
        ldr     x30, [x8, x9]
        cmp     x10, x30
        b.ne    4f
        add     x9, x9, #8
        cmp     x9, x5
        b.lo    6b
        b       7f
4:      add     x7, x7, #1
        add     x7, x7, #MOST_STEPS_UNIT, lsl #12
        tbz     x7, #24, 2b
        add     x6, x1, #1 << (CELL_BITS + \bits)
        add     x6, x6, #1 << CELL_BITS
7:      ldp     x30, x10, [sp], #16
        ret
end find_wide_\bits\()_\way
        .endm

# Keep the greatest of x0 and what is at a place of the cell at x6. Changes x4, x5, x8.
        .macro  keep_most place, way
        add     x4, x6, #\place
        keep_most_\way
        .endm

        .macro  keep_most_atomic
        ldr     x5, [x4]
2:      cmp     x5, x0
        b.hs    3f
        mov     x8, x5
        casal   x8, x0, [x4]
        cmp     x8, x5
        mov     x5, x8
        b.ne    2b
3:
        .endm

        .macro  keep_most_exclusive
2:      ldxr    x5, [x4]
        cmp     x5, x0
        b.hs    3f
        stxr    w8, x0, [x4]
        cbnz    w8, 2b
3:      clrex
        .endm

# Add a number to what is at x4; x5 = what was there. Changes x3, x8.
        .macro  add_atomic number
        ldadd   \number, x5, [x4]
        .endm

        .macro  add_exclusive number
4:      ldxr    x5, [x4]
        add     x3, x5, \number
        stxr    w8, x3, [x4]
        cbnz    w8, 4b
        .endm

# Keep the greatest and the least value of the cell at x6, and add the value in x0 to its sum. It is counted behind that.
# Changes x2 to x5, x8.
        .macro  tally sign, way, high:vararg
template tally_\sign\()_\way
        .ifc    \sign, signed
        eor     x0, x0, #1 << 63
        .endif
        keep_most MOST, \way
        mvn     x0, x0
        keep_most LEAST, \way
        mvn     x0, x0
        .ifc    \sign, signed
        eor     x0, x0, #1 << 63
        .endif
        dmb     ishst
        \high
        add     x4, x6, #SUM
        add_\way x0
        adds    x3, x5, x0
        adc     x2, x2, xzr
        cbz     x2, 1f
        add     x4, x6, #SUM + 8
        add_\way x2
1:      dmb     ishst
        ret
end tally_\sign\()_\way
        .endm

# Count the value in x0 in its class; x7 + 2^7 x6 is where the classes of the cell at x6 are. Changes x2 to x5, x7, x8.
        .macro  count_class sign, way
template count_class_\sign\()_\way
        mov     x2, x0
        .ifc    \sign, signed
        tbz     x0, #63, 5f
        neg     x2, x0
        add     x7, x7, #NEGATIVE
5:
        .endif
        cmp     x2, #8
        b.lo    6f
        clz     x3, x2
        mov     x4, #60
        sub     x3, x4, x3
        lsr     x2, x2, x3
        add     x2, x2, x3, lsl #3
6:      add     x7, x7, x6, lsl #CLASSES_BITS - CELL_BITS
        add     x4, x7, x2, lsl #3
        count_\way x4, x5, w8
        ret
end count_class_\sign\()_\way
        .endm

        .macro  count_in_cell way
template count_in_cell_\way
        add     x4, x6, #COUNT
        count_\way x4, x5, w8
        ret
end count_in_cell_\way
        .endm

        .irp    way, atomic, exclusive
        find    12, \way
        find    8, \way
        find_wide 12, \way
        find_wide 8, \way
        tally   signed, \way, asr x2, x0, #63
        tally   unsigned, \way, mov x2, #0
        count_class signed, \way
        count_class unsigned, \way
        count_in_cell \way
        .endr

# Divide x0 by x1, and round down. Changes x2, x3.
template divide_signed
        sdiv    x2, x0, x1
        msub    x3, x2, x1, x0
        add     x0, x2, x3, asr #63
        ret
end divide_signed

template divide_unsigned
        udiv    x0, x0, x1
        ret
end divide_unsigned

# Behind `claim_process`, and behind what brings the thread's number.
template own_process
        mov     w0, w5
        ret
end own_process

template own_thread
        mov     w0, w3
        ret
end own_thread

# -- pairs of hits (see x86_64.S) --------------------------------------------------------------------------------------

        WITHOUT_BEGIN = 0
        TOO_DEEP = 8
        TOO_MANY = 16
        WITHOUT_KEY = 24
        REJECTED = 32
        LEFT = 40
        STACKS = 64
        STACKS_BITS = 10
        STACK_BITS = 11
        BEGINS = 16
        NUMBER = 16
        ROOM_BITS = 6
        SEARCH = 64
        FAILED = 63
        KEYLESS = 62
        TESTED = 61

template mark                   // x6 = what is known of a hit
        number_64 x6, mark
end mark

template keyless
        orr     x6, x6, #1 << KEYLESS
end keyless

template hold_mark              // while a key of several words is made
        str     x6, [sp, #HELD]
end hold_mark

template held_mark
        ldr     x6, [sp, #HELD]
end held_mark

template place_by_stack         // x1 = what is the same in all of a call
        number_64 x1, place
        add     x1, sp, x1
end place_by_stack

template place_by_frame
        number_64 x1, frame
        add     x1, x29, x1
end place_by_frame

template begin_of_pair          // the key is in x0
        number_64 x7, pairs
        bl      begin_pair
end begin_of_pair

template end_of_pair            // equal: no pair; else the key is in x0, and the time that it took in x1
        number_64 x7, pairs
        bl      end_pair
end end_of_pair

template hold_key               // by which a pair's hits are told apart
        str     x0, [sp, #HELD_KEY]
end hold_key

template hashed_key
        add     x4, sp, #FRAME
        bl      hash_words
end hashed_key

template begin_of_keyed_pair
        ldr     x2, [sp, #HELD_KEY]
        number_64 x7, pairs
        bl      begin_keyed
end begin_of_keyed_pair

template end_of_keyed_pair      // as `end_of_pair`
        ldr     x2, [sp, #HELD_KEY]
        number_64 x7, pairs
        bl      end_keyed
end end_of_keyed_pair

        .macro  count_unkeyed way
template count_unkeyed_\way
        number_64 x4, pairs
        add     x4, x4, #WITHOUT_KEY
        count_\way x4, x5, w8
end count_unkeyed_\way
        .endm
        count_unkeyed atomic
        count_unkeyed exclusive

template hold_time              // while the cell is looked for
        mov     x9, x1
end hold_time

template held_time
        mov     x0, x9
end held_time

# Find the stack of this thread among those at x7: x4 = its address, x5 = its word, x0 = the thread's number above.
# Goes to `free` or `none` as on x86-64; x2 is behind the last then. Changes x1 to x3, x8.
        .macro  find_stack free, none
10:     bl      own_thread
        lsl     x0, x0, #32
        golden  x2
        mul     x2, x2, x0
        lsr     x2, x2, #64 - STACKS_BITS
        mov     w1, #SEARCH
11:     stack_at_x2
        eor     x3, x5, x0
        lsr     x3, x3, #32
        cbz     x3, 12f
        cbz     x5, \free
        add     x2, x2, #1
        subs    w1, w1, #1
        b.ne    11b
        b       \none
12:
        .endm

        .macro  stack_at_x2
        and     x4, x2, #(1 << STACKS_BITS) - 1
        add     x4, x7, x4, lsl #STACK_BITS
        add     x4, x4, #STACKS
        ldr     x5, [x4]
        .endm

# Let a word become x3, if it is what it was still; else search again: a handler of a signal has come between.
# Whose stack was empty and becomes another thread's has written all before (release), and the other after (acquire).
        .macro  exchange_word_atomic at, was
        mov     x8, \was
        casal   x8, x3, [\at]
        cmp     x8, \was
        b.ne    10b
        .endm

        .macro  exchange_word_exclusive at, was
        ldaxr   x8, [\at]
        cmp     x8, \was
        b.ne    10b
        stlxr   w8, x3, [\at]
        cbnz    w8, 10b
        .endm

        .macro  begin_at number, to     // not x4, which is the stack
        and     w\to, w\number, #(1 << ROOM_BITS) - 1
        add     x\to, x\to, x\to, lsl #1
        add     x\to, x4, x\to, lsl #3
        add     x\to, x\to, #BEGINS
        .endm

# Put a begin on the stack of its thread: x7 = pairs, x0 = key, x6 = mark, x1 = where on the program's stack. Changes x0 to
# x5, x8, x9.
        .macro  begin_pair way
template begin_pair_\way
        stp     x30, x1, [sp, #-16]!
        mov     x9, x0
        find_stack 3f, 4f
        add     x3, x5, #1
        exchange_word_\way x4, x5
2:      begin_at 5, 3
        ldr     x1, [sp, #8]
        mov     w5, w5
        orr     x5, x5, x1, lsl #32
        str     x5, [x3, #NUMBER]
        mrs     x1, cntvct_el0
        orr     x1, x1, x6
        stp     x1, x9, [x3]
5:      ldr     x30, [sp], #16
        ret
3:      add     x3, x0, #1
        exchange_word_\way x4, x5
        mov     x5, #0
        b       2b
4:      sub     x2, x2, #SEARCH         // no free one: take one of a thread that has no begin waiting
        mov     w1, #SEARCH
6:      stack_at_x2
        cbz     w5, 3b
        add     x2, x2, #1
        subs    w1, w1, #1
        b.ne    6b
        add     x4, x7, #TOO_MANY
        count_\way x4, x5, w8
        b       5b
end begin_pair_\way
        .endm

# Take the youngest begin from the stack of this thread; registers as for `begin_pair`, results as for `end_of_pair`.
        .macro  judge time              // the begin, x2 and x0
        tst     x2, #1 << TESTED
        csel    x3, x2, x6, ne
        tbnz    x3, #FAILED, 8f
        tbz     x2, #KEYLESS, 2f
        mov     x0, x9
        tbnz    x6, #KEYLESS, 4f
2:      and     x2, x2, #(1 << TESTED) - 1
        ldr     x1, [sp, #\time]
        subs    x1, x1, x2
        csel    x1, x1, xzr, hs
        cmp     x4, #0                  // not equal
        b       9f
4:      add     x4, x7, #WITHOUT_KEY
        b       7f
        .endm

        .macro  judged way              // 6: there is no begin; 7: there is no pair
6:      add     x4, x7, #WITHOUT_BEGIN
        tbz     x6, #TESTED, 7f
        tbz     x6, #FAILED, 7f
        add     x4, x7, #REJECTED
7:      count_\way x4, x5, w8
8:      cmp     x4, x4
9:
        .endm

        .macro  end_pair way
template end_pair_\way
        stp     x30, x1, [sp, #-32]!
        mrs     x3, cntvct_el0
        stp     x3, xzr, [sp, #16]      // and how many have been left that count
        mov     x9, x0
        find_stack 6f, 6f
        subs    w1, w5, #1
        b.lo    6f
        load_begin 5f
        b.mi    11f
12:     sub     x3, x5, #1
        exchange_word_\way x4, x5
13:     judge   16
11:     ldr     x3, [sp, #24]
        tbz     x2, #TESTED, 14f
        tbnz    x2, #FAILED, 15f
14:     add     x3, x3, #1
        str     x3, [sp, #24]
15:     subs    w1, w1, #1
        b.lo    16f
        load_begin 17f
        b.mi    11b
        b.ne    16f
        sub     w3, w5, w1
        sub     x3, x5, x3
        exchange_word_\way x4, x5
        ldr     x1, [sp, #24]
        add     x4, x7, #LEFT
        add_\way x1
        b       13b
17:     ldr     x3, [sp, #8]
        tbz     x3, #0, 5f
16:     str     xzr, [sp, #24]
        sub     w1, w5, #1
        load_begin 5f
        b       12b
5:      sub     x3, x5, #1
        exchange_word_\way x4, x5
        add     x4, x7, #TOO_DEEP
        b       7f
        judged  \way
        ldr     x30, [sp], #32
        ret
end end_pair_\way
        .endm

# The begin with the number w1: x2 = its time and mark, x0 = its key; conditions as on x86-64. Changes x3, x8.
        .macro  load_begin lost
        begin_at 1, 3
        ldp     x2, x0, [x3]
        ldr     x3, [x3, #NUMBER]
        cmp     w3, w1
        b.ne    \lost
        lsr     x3, x3, #32
        ldr     x8, [sp, #8]
        subs    w3, w3, w8
        .endm

# -- pairs by a key (see x86_64/templates.S) ---------------------------------------------------------------------------

        BUCKETS_BITS = 8
        SLOTS = 40
        SLOT_BITS = 6
        OWNER = STACKS + 8
        SLOTS_SIZE = 1 << 20            // behind them are the buckets' masks

        .macro  find_bucket             // of the key in x2: x0 = the process, x1 = the number of the first slot
        bl      own_process
        eor     x1, x2, x0, lsl #32
        golden  x3
        mul     x1, x1, x3
        lsr     x3, x1, #64 - BUCKETS_BITS
        lsl     x1, x3, #6
        bfxil   x1, x3, #0, #6
        .endm

        .macro  slot_of_bit bit, slot   // the address of the owner, behind which are the pair's key, time and key
        add     \slot, x1, \bit
        eor     \slot, \slot, x1
        and     \slot, \slot, #63
        eor     \slot, \slot, x1
        add     \slot, x7, \slot, lsl #SLOT_BITS
        add     \slot, \slot, #OWNER
        .endm

        .macro  mask_of_bucket to, other
        lsr     \to, x1, #6
        ubfx    \other, x1, #10, #2
        lsl     \to, \to, #8
        add     \to, \to, \other, lsl #6
        add     \to, \to, x7
        add     \to, \to, #SLOTS_SIZE >> 12, lsl #12
        add     \to, \to, #STACKS
        .endm

        .macro  add_to_mask_atomic bits, at
        ldaddal \bits, x5, [\at]
        .endm

        .macro  add_to_mask_exclusive bits, at
14:     ldxr    x5, [\at]
        add     x5, x5, \bits
        stlxr   w8, x5, [\at]
        cbnz    w8, 14b
        .endm

# As `begin_pair`, for the pair's key in x2.
        .macro  begin_keyed way
template begin_keyed_\way
        str     x30, [sp, #-16]!
        mov     x9, x0
        find_bucket
        mov     x3, #0
1:      slot_of_bit x3, x4
        ldr     x5, [x4]
        cbnz    x5, 2f
        take_\way 3f, 2f
2:      add     x3, x3, #1
        cmp     x3, #SLOTS
        b.lo    1b
        add     x4, x7, #TOO_MANY
        count_\way x4, x5, w8
        b       4f
3:      mrs     x5, cntvct_el0
        orr     x5, x5, x6
        str     x2, [x4, #8]
        stp     x5, x9, [x4, #16]
        mov     x0, #1
        lsl     x0, x0, x3
        orr     x0, x0, #1 << SLOTS
        mask_of_bucket x4, x5
        add_to_mask_\way x0, x4
4:      ldr     x30, [sp], #16
        ret
end begin_keyed_\way
        .endm

# As `end_pair`, for the pair's key in x2.
        .macro  end_keyed way
template end_keyed_\way
        stp     x30, x10, [sp, #-48]!
        stp     x11, x12, [sp, #16]
        mrs     x3, cntvct_el0
        stp     x13, x3, [sp, #32]
        mov     x9, x0
        find_bucket
        mask_of_bucket x10, x4
10:     ldar    x11, [x10]
        and     x3, x11, #(1 << SLOTS) - 1
        mov     x12, #0                 // when the youngest one began, above
11:     cbz     x3, 12f
        rbit    x5, x3
        clz     x5, x5
        sub     x4, x3, #1
        and     x3, x3, x4
        slot_of_bit x5, x8
        ldp     x4, x30, [x8]
        cmp     x4, x0
        ccmp    x30, x2, #0, eq
        b.ne    11b
        ldr     x4, [x8, #16]
        lsl     x4, x4, #64 - TESTED
        cmp     x4, x12
        b.ls    11b
        mov     x12, x4
        mov     x13, x5
        b       11b
12:     cbz     x12, 13f
        mov     x12, #1
        lsl     x12, x12, x13
        bic     x3, x11, x12
        exchange_word_\way x10, x11
        slot_of_bit x13, x8
        ldp     x2, x0, [x8, #16]
        stlr    xzr, [x8]
        judge   40
13:     dmb     ishld
        ldr     x3, [x10]
        eor     x3, x3, x11
        lsr     x3, x3, #SLOTS
        cbnz    x3, 10b
        b       6f
        judged  \way
        ldp     x11, x12, [sp, #16]
        ldr     x13, [sp, #32]
        ldp     x30, x10, [sp], #48
        ret
end end_keyed_\way
        .endm

        .irp    way, atomic, exclusive
        begin_pair \way
        end_pair \way
        begin_keyed \way
        end_keyed \way
        .endr

# -- a thread of the program that works for us (Kernel in ../host.py) --------------------------------------------------

# x19: table, x20: how many, x21: results, x22: the word that says that all is done.
template call_loop
1:      cbz     x20, 2f
        ldr     x8, [x19]
        ldp     x0, x1, [x19, #8]
        ldp     x2, x3, [x19, #24]
        ldp     x4, x5, [x19, #40]
        svc     #0
        str     x0, [x21], #8
        add     x19, x19, #56
        sub     x20, x20, #1
        b       1b
2:      mov     x0, #1
        stlr    x0, [x22]
3:      yield
        b       3b
end call_loop

# -- functions of our own process, by the C calling convention (Host in ../host.py) ------------------------------------

template ticks
        mrs     x0, cntvct_el0
        ret
end ticks

template ticks_a_second
        mrs     x0, cntfrq_el0
        ret
end ticks_a_second

template fence
        dmb     ish
        ret
end fence

template skip
1:      ldaxr   x4, [x0]
        cmp     x4, x1
        b.ne    2f
        stlxr   w5, x2, [x0]
        cbnz    w5, 1b
        stlr    x2, [x3]
        mov     w0, #1
        ret
2:      clrex
        mov     w0, #0
        ret
end skip
