"""ELF's numbers of machines (gABI, e_machine). What is known about a machine is in the module that bears its name."""

EM_SPARC, EM_386, EM_MIPS, EM_SPARC32PLUS, EM_PPC, EM_PPC64, EM_S390, EM_ARM = 2, 3, 8, 18, 20, 21, 22, 40
EM_SPARCV9, EM_X86_64, EM_AARCH64, EM_RISCV, EM_LOONGARCH = 43, 62, 183, 243, 258
