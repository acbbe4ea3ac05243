# Runs code of ours as a site would: void run_code(void *code, const uint64_t in[48], uint64_t out[48]).
# in, out: 16 registers in the order of their numbers (the stack pointer's is not used), then 16 words from the stack
# pointer up, then 16 words of the red zone from its lowest on. The code ends by jumping to `code_is_back`.
        .data
target: .quad 0
result: .quad 0
stack:  .quad 0
rax:    .quad 0
        .text
        .globl  run_code
run_code:
        push    %rbx
        push    %rbp
        push    %r12
        push    %r13
        push    %r14
        push    %r15
        mov     %rdi, target(%rip)
        mov     %rdx, result(%rip)
        mov     %rsp, stack(%rip)
        sub     $1024, %rsp
        mov     $15, %ecx
1:      mov     128(%rsi,%rcx,8), %rax
        mov     %rax, (%rsp,%rcx,8)
        mov     256(%rsi,%rcx,8), %rax
        mov     %rax, -128(%rsp,%rcx,8)
        dec     %ecx
        jns     1b
        mov     (%rsi), %rax
        mov     8(%rsi), %rcx
        mov     16(%rsi), %rdx
        mov     24(%rsi), %rbx
        mov     40(%rsi), %rbp
        mov     56(%rsi), %rdi
        mov     64(%rsi), %r8
        mov     72(%rsi), %r9
        mov     80(%rsi), %r10
        mov     88(%rsi), %r11
        mov     96(%rsi), %r12
        mov     104(%rsi), %r13
        mov     112(%rsi), %r14
        mov     120(%rsi), %r15
        mov     48(%rsi), %rsi
        jmp     *target(%rip)

        .globl  code_is_back
code_is_back:
        mov     %rax, rax(%rip)
        mov     result(%rip), %rax
        mov     %rcx, 8(%rax)
        mov     %rdx, 16(%rax)
        mov     %rbx, 24(%rax)
        mov     %rsp, 32(%rax)
        mov     %rbp, 40(%rax)
        mov     %rsi, 48(%rax)
        mov     %rdi, 56(%rax)
        mov     %r8, 64(%rax)
        mov     %r9, 72(%rax)
        mov     %r10, 80(%rax)
        mov     %r11, 88(%rax)
        mov     %r12, 96(%rax)
        mov     %r13, 104(%rax)
        mov     %r14, 112(%rax)
        mov     %r15, 120(%rax)
        mov     rax(%rip), %rcx
        mov     %rcx, (%rax)
        mov     $15, %ecx
2:      mov     (%rsp,%rcx,8), %rdx
        mov     %rdx, 128(%rax,%rcx,8)
        mov     -128(%rsp,%rcx,8), %rdx
        mov     %rdx, 256(%rax,%rcx,8)
        dec     %ecx
        jns     2b
        mov     stack(%rip), %rsp
        pop     %r15
        pop     %r14
        pop     %r13
        pop     %r12
        pop     %rbp
        pop     %rbx
        ret
        .section .note.GNU-stack,"",@progbits
