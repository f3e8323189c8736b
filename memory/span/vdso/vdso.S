/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The program's replacement for the kernel's vDSO: an ELF image in its segment, at the same
 * address on all nodes. Its functions continue in the node's own code, which they find by
 * GS: it points to the thread's slot. ../src/clocks.rs describes the continuation, and the
 * use of the function's address (RAX). Behind each function is its system call, for clocks
 * that cannot be read in this way.
 */
#define SLOT_CLOCKS 8
#define CALL_OFFSET 32

.macro continues name, number
	.balign 2 * CALL_OFFSET
	.globl __vdso_\name
	.type __vdso_\name, @function
__vdso_\name:
1:
	.cfi_startproc
	lea	1b(%rip), %rax
	mov	$\number, %ecx
	jmp	*%gs:SLOT_CLOCKS
	.balign CALL_OFFSET
	mov	$\number, %eax
	syscall
	ret
	.cfi_endproc
	.size __vdso_\name, . - __vdso_\name
.endm

	.text
	continues gettimeofday, 96
	continues time, 201
	continues clock_gettime, 228
	continues clock_getres, 229
	continues getcpu, 309

	.section .note.GNU-stack, "", @progbits
