# A DOF written by hand from the format's description, which nothing of ours has had a hand in: version 2, 64-bit,
# little-endian. One provider, `hand`, with probe `req-start` in `serve` (two sites, one is-enabled site, two native
# arguments of which the translated ones are the second and the first) and `req-done` in `finish`.
# RELOCATION (1 SETX, 2 DOFREL) and ADDRESS(function) come from the command line and the macro.
	.text
	.globl	serve, finish, main
	.type	serve, @function
serve:
	nop
.Lenabled1:
	nop
.Lsite1:
	nop
	nop
.Lsite2:
	nop
	ret
	.size	serve, . - serve
	.type	finish, @function
finish:
.Lsite3:
	nop
	ret
	.size	finish, . - finish
	.type	main, @function
main:
	call	serve
	call	finish
	xorl	%eax, %eax
	ret
	.size	main, . - main
	.set	.Lserve, serve
	.set	.Lfinish, finish

	.macro	ADDRESS function
	.if	RELOCATION == 1
	.quad	\function
	.else
	.quad	\function - .
	.endif
	.endm

	.macro	SECTION type, align, entsize, start, end
	.long	\type, \align, 1, \entsize
	.quad	\start - dof, \end - \start
	.endm

	.section .SUNW_dof,"a",%0x6ffffff4
	.balign	8
dof:
	.byte	0x7f, 'D', 'O', 'F', 2, 1, 2, 2, 8, 8, 0, 0, 0, 0, 0, 0
	.long	0, 64, 32, 8
	.quad	64, end - dof, end - dof, 0
	SECTION	8, 1, 0, strings, end
	SECTION	16, 8, 48, probes, probes_end
	SECTION	17, 1, 1, arguments, arguments_end
	SECTION	18, 4, 4, offsets, offsets_end
	SECTION	26, 4, 4, enabled, enabled_end
	SECTION	15, 4, 0, provider, provider_end
	SECTION	10, 8, 24, relocations, relocations_end
	SECTION	12, 4, 0, relocation_header, relocation_header_end
probes:
	ADDRESS	.Lserve
	.long	serve_name - strings, start_name - strings, native - strings, translated - strings, 0, 0
	.byte	2, 2
	.short	2
	.long	0
	.short	1, 0
	.long	0
	ADDRESS	.Lfinish
	.long	finish_name - strings, done_name - strings, 0, 0, 2, 2
	.byte	0, 0
	.short	1
	.long	1
	.short	0, 0
	.long	0
probes_end:
arguments:
	.byte	1, 0
arguments_end:
	.balign	4
offsets:
	.long	.Lsite1 - serve, .Lsite2 - serve, .Lsite3 - finish
offsets_end:
enabled:
	.long	.Lenabled1 - serve
enabled_end:
	.balign	4
provider:
	.long	0, 1, 2, 3, provider_name - strings
	.long	0x05050500, 0x01010500, 0x01010500, 0x05050500, 0x05050400
	.long	4
provider_end:
	.balign	8
relocations:
	.long	serve_name - strings, RELOCATION
	.quad	0, 0
	.long	finish_name - strings, RELOCATION
	.quad	48, 0
relocations_end:
relocation_header:
	.long	0, 6, 1
relocation_header_end:
strings:
	.byte	0
provider_name:
	.asciz	"hand"
serve_name:
	.asciz	"serve"
finish_name:
	.asciz	"finish"
start_name:
	.asciz	"req-start"
done_name:
	.asciz	"req-done"
native:
	.asciz	"char *"
	.asciz	"int"
translated:
	.asciz	"int"
	.asciz	"string"
	.balign	8
end:
	.section .note.GNU-stack,"",%progbits
