/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * What the program gets for the kernel's vDSO: an ELF image in its segment, at the same address on
 * all nodes, whose functions go on in the node's own code. That is found by GS, which points to
 * the thread's seat; how it goes on there, and why it needs the function's address (RAX), is said
 * in ../src/clocks.rs. Behind each function stands its system call, for what cannot be read so.
 */
#define SEAT_CLOCKS 8
#define CALL_OFFSET 32

.macro goes_on name, number
	.balign 2 * CALL_OFFSET
	.globl __vdso_\name
	.type __vdso_\name, @function
__vdso_\name:
1:
	.cfi_startproc
	lea	1b(%rip), %rax
	mov	$\number, %ecx
	jmp	*%gs:SEAT_CLOCKS
	.balign CALL_OFFSET
	mov	$\number, %eax
	syscall
	ret
	.cfi_endproc
	.size __vdso_\name, . - __vdso_\name
.endm

	.text
	goes_on gettimeofday, 96
	goes_on time, 201
	goes_on clock_gettime, 228
	goes_on clock_getres, 229
	goes_on getcpu, 309

	.section .note.GNU-stack, "", @progbits
